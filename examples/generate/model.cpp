// One pass through the layers. Buffers grow to the largest number of tokens fed at once and stay.
#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tilewise::generate {

namespace {

void resize(std::vector<float>& buffer, std::int64_t floats) {
    buffer.resize(std::max(buffer.size(), static_cast<std::size_t>(floats)));
}

// out = x / rms(x) * weight. The mean is taken in double: 576 squares cost nothing and the order of adding is then no matter.
void rms_norm(const float* x, const std::vector<float>& weight, float epsilon, float* out) {
    double squares = 0;
    for (std::size_t i = 0; i < weight.size(); ++i) {
        squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    const double mean = squares / static_cast<double>(weight.size());
    const auto scale = static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(epsilon)));
    for (std::size_t i = 0; i < weight.size(); ++i) {
        out[i] = x[i] * scale * weight[i];
    }
}

void rms_norm_rows(const std::vector<float>& x, const std::vector<float>& weight, float epsilon, std::int64_t rows,
                   std::vector<float>& out) {
    const auto width = static_cast<std::int64_t>(weight.size());
    for (std::int64_t row = 0; row < rows; ++row) {
        rms_norm(x.data() + row * width, weight, epsilon, out.data() + row * width);
    }
}

void add(const std::vector<float>& term, std::int64_t floats, std::vector<float>& sum) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(floats); ++i) {
        sum[i] += term[i];
    }
}

std::int64_t widest_input(const ModelConfig& config) {
    return std::max({config.width, config.ffn_width, config.heads.num_heads_q * config.heads.head_dim});
}

}  // namespace

Model::Model(const ModelConfig& config, Weights weights, CachedAttention& attention, ThreadTeam& team)
    : config_(config),
      weights_(std::move(weights)),
      attention_(attention),
      team_(team),
      linear_(team, widest_input(config)) {
    resize(at_.logits, weights_.output.rows);
}

std::span<const float> Model::forward(std::span<const std::int32_t> tokens) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    embed(tokens);
    for (std::int64_t layer = 0; layer < config_.num_layers; ++layer) {
        attention_block(layer, count);
        ffn_block(weights_.layers[static_cast<std::size_t>(layer)], count);
    }
    attention_.advance(count);
    const float* last = at_.x.data() + (count - 1) * config_.width;
    rms_norm(last, weights_.output_norm, config_.rms_epsilon, at_.norm.data());
    const Product output[] = {{&weights_.output, at_.logits.data()}};
    linear_.multiply(output, at_.norm.data(), 1);
    return at_.logits;
}

void Model::embed(std::span<const std::int32_t> tokens) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const HeadShape& heads = config_.heads;
    for (std::vector<float>* buffer : {&at_.x, &at_.norm, &at_.projected}) {
        resize(*buffer, count * config_.width);
    }
    for (std::vector<float>* buffer : {&at_.q, &at_.attended}) {
        resize(*buffer, count * heads.num_heads_q * heads.head_dim);
    }
    for (std::vector<float>* buffer : {&at_.k, &at_.v}) {
        resize(*buffer, count * heads.num_heads_kv * heads.head_dim);
    }
    for (std::vector<float>* buffer : {&at_.gate, &at_.up}) {
        resize(*buffer, count * config_.ffn_width);
    }
    for (std::int64_t t = 0; t < count; ++t) {
        const auto width = static_cast<std::size_t>(config_.width);
        dequantize_row(weights_.embedding, tokens[static_cast<std::size_t>(t)],
                       std::span(at_.x).subspan(static_cast<std::size_t>(t) * width, width));
    }
}

void Model::attention_block(std::int64_t layer, std::int64_t tokens) {
    const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
    rms_norm_rows(at_.x, weights.attention_norm, config_.rms_epsilon, tokens, at_.norm);
    const Product projections[] = {{&weights.q, at_.q.data()}, {&weights.k, at_.k.data()}, {&weights.v, at_.v.data()}};
    linear_.multiply(projections, at_.norm.data(), tokens);
    attention_.attend(layer, at_.q.data(), at_.k.data(), at_.v.data(), tokens, at_.attended.data());
    const Product output[] = {{&weights.attention_output, at_.projected.data()}};
    linear_.multiply(output, at_.attended.data(), tokens);
    add(at_.projected, tokens * config_.width, at_.x);
}

void Model::ffn_block(const LayerWeights& weights, std::int64_t tokens) {
    rms_norm_rows(at_.x, weights.ffn_norm, config_.rms_epsilon, tokens, at_.norm);
    const Product widening[] = {{&weights.gate, at_.gate.data()}, {&weights.up, at_.up.data()}};
    linear_.multiply(widening, at_.norm.data(), tokens);
    gate(tokens);
    const Product narrowing[] = {{&weights.down, at_.projected.data()}};
    linear_.multiply(narrowing, at_.gate.data(), tokens);
    add(at_.projected, tokens * config_.width, at_.x);
}

// gate = silu(gate) * up, shared among the threads: 1,536 exponentials a token and layer are worth it.
void Model::gate(std::int64_t tokens) {
    constexpr std::int64_t kItem = 256;
    const std::int64_t floats = tokens * config_.ffn_width;
    team_.run((floats + kItem - 1) / kItem, [&](std::int64_t item, int) {
        const std::int64_t end = std::min((item + 1) * kItem, floats);
        for (std::int64_t i = item * kItem; i < end; ++i) {
            const float value = at_.gate[static_cast<std::size_t>(i)];
            at_.gate[static_cast<std::size_t>(i)] =
                value / (1.0f + std::exp(-value)) * at_.up[static_cast<std::size_t>(i)];
        }
    });
}

}  // namespace tilewise::generate
