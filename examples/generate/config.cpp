// Reads and cross-checks the `llama.*` keys.
#include "config.hpp"

#include <cmath>
#include <string>

namespace tilewise::generate {

namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 24;

std::int64_t size_of(const Gguf& file, const std::string& key) {
    const std::int64_t value = file.integer(key);
    if (value < 1 || value > kLargest) {
        throw GgufError(key + ": " + std::to_string(value) + "; 1 to " + std::to_string(kLargest) + " is allowed");
    }
    return value;
}

double positive(const Gguf& file, const std::string& key) {
    const double value = file.number(key);
    if (!std::isfinite(value) || value <= 0) {
        throw GgufError(key + ": " + std::to_string(value) + "; a positive number is allowed");
    }
    return value;
}

void refuse_what_is_not_computed(const Gguf& file) {
    if (file.integer_or("llama.expert_count", 0) != 0) {
        throw GgufError("llama.expert_count: " + std::to_string(file.integer("llama.expert_count")) +
                        "; 0 is allowed, this program runs no mixtures of experts");
    }
    if (file.has("llama.rope.scaling.type") && file.string("llama.rope.scaling.type") != "none") {
        throw GgufError("llama.rope.scaling.type: \"" + printable(file.string("llama.rope.scaling.type")) +
                        "\"; \"none\" is allowed");
    }
}

HeadShape read_heads(const Gguf& file, std::int64_t width) {
    HeadShape heads;
    heads.num_heads_q = size_of(file, "llama.attention.head_count");
    heads.num_heads_kv =
        file.has("llama.attention.head_count_kv") ? size_of(file, "llama.attention.head_count_kv") : heads.num_heads_q;
    if (heads.num_heads_q % heads.num_heads_kv != 0) {
        throw GgufError("llama.attention.head_count_kv: " + std::to_string(heads.num_heads_kv) +
                        "; a divisor of llama.attention.head_count = " + std::to_string(heads.num_heads_q) +
                        " is allowed");
    }
    if (!file.has("llama.attention.key_length") && width % heads.num_heads_q != 0) {
        throw GgufError("llama.attention.head_count: " + std::to_string(heads.num_heads_q) +
                        "; a divisor of llama.embedding_length = " + std::to_string(width) + " is allowed");
    }
    heads.head_dim = file.has("llama.attention.key_length") ? size_of(file, "llama.attention.key_length")
                                                            : width / heads.num_heads_q;
    if (const auto value_dim = file.integer_or("llama.attention.value_length", heads.head_dim);
        value_dim != heads.head_dim) {
        throw GgufError("llama.attention.value_length: " + std::to_string(value_dim) + "; the key length " +
                        std::to_string(heads.head_dim) + " is allowed");
    }
    heads.rotary_dim = file.integer_or("llama.rope.dimension_count", heads.head_dim);
    if (heads.rotary_dim < 2 || heads.rotary_dim > heads.head_dim || heads.rotary_dim % 2 != 0) {
        throw GgufError("llama.rope.dimension_count: " + std::to_string(heads.rotary_dim) +
                        "; an even number from 2 to the head size " + std::to_string(heads.head_dim) + " is allowed");
    }
    heads.rotary_base = file.has("llama.rope.freq_base") ? positive(file, "llama.rope.freq_base") : 10000.0;
    return heads;
}

}  // namespace

ModelConfig read_config(const Gguf& file) {
    if (const auto architecture = file.string("general.architecture"); architecture != "llama") {
        throw GgufError("general.architecture: \"" + printable(architecture) + "\"; \"llama\" is allowed");
    }
    refuse_what_is_not_computed(file);
    ModelConfig config;
    config.num_layers = size_of(file, "llama.block_count");
    config.context_length = size_of(file, "llama.context_length");
    config.width = size_of(file, "llama.embedding_length");
    config.ffn_width = size_of(file, "llama.feed_forward_length");
    config.rms_epsilon = static_cast<float>(positive(file, "llama.attention.layer_norm_rms_epsilon"));
    config.heads = read_heads(file, config.width);
    return config;
}

}  // namespace tilewise::generate
