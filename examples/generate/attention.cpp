// One decode problem per layer and step. Its shapes depend on the number of new tokens alone (the cache is described at
// its full capacity, the tokens in it are data), so one plan serves all layers and all steps that feed as many tokens.
#include "attention.hpp"

#include <chrono>
#include <cmath>
#include <numeric>
#include <span>

#include "narrow.hpp"

namespace tilewise::generate {

namespace {

constexpr const char* kOracleKernel = "cpu_reference_forward";

tilewise::DType dtype_of(const std::string& name) {
    return name == "f32" ? tilewise::DType::kF32 : name == "f16" ? tilewise::DType::kF16 : tilewise::DType::kBF16;
}

// A contiguous tensor (batch of one, rows, heads, head_dim).
tilewise::Tensor rows(const void* data, tilewise::DType dtype, std::int64_t count, std::int64_t heads,
                      std::int64_t head_dim) {
    return {data, dtype, {1, count, heads, head_dim}};
}

}  // namespace

CachedAttention::CachedAttention(const HeadShape& heads, std::int64_t layers, std::int64_t capacity,
                                 const AttentionOptions& options)
    : heads_(heads), options_(options), dtype_(dtype_of(options.cache_type)) {
    make_tables(capacity);
    const std::int64_t pages = static_cast<std::int64_t>(tables_.page_table.size());
    const std::int64_t slots = pages > 0 ? pages * options_.page_size : capacity;
    const std::int64_t bytes = slots * heads_.num_heads_kv * heads_.head_dim * tilewise::size_of(dtype_);
    layers_.resize(static_cast<std::size_t>(layers));
    for (Layer& layer : layers_) {
        layer.k.resize(static_cast<std::size_t>(bytes));
        layer.v.resize(static_cast<std::size_t>(bytes));
    }
}

void CachedAttention::make_tables(std::int64_t capacity) {
    tables_.cache_seqlens = {0};
    const std::int64_t pairs = heads_.rotary_dim / 2;
    for (std::int64_t position = 0; position < capacity; ++position) {
        for (std::int64_t pair = 0; pair < pairs; ++pair) {
            const double exponent = static_cast<double>(pair) / static_cast<double>(pairs);
            const double angle = static_cast<double>(position) * std::pow(heads_.rotary_base, -exponent);
            tables_.rotary_cos.push_back(static_cast<float>(std::cos(angle)));
            tables_.rotary_sin.push_back(static_cast<float>(std::sin(angle)));
        }
    }
    if (options_.page_size > 0) {
        // Backwards through memory: a page table in rising order would hide a kernel that ignores it.
        tables_.page_table.resize(static_cast<std::size_t>((capacity + options_.page_size - 1) / options_.page_size));
        std::iota(tables_.page_table.rbegin(), tables_.page_table.rend(), 0);
    }
}

void CachedAttention::attend(std::int64_t layer, const float* q, const float* k, const float* v,
                             std::int64_t new_tokens, float* out) {
    const auto start = std::chrono::steady_clock::now();
    const Layer& cache = layers_[static_cast<std::size_t>(layer)];
    const auto q_floats = static_cast<std::size_t>(new_tokens * heads_.num_heads_q * heads_.head_dim);
    const auto kv_floats = static_cast<std::size_t>(new_tokens * heads_.num_heads_kv * heads_.head_dim);
    if (dtype_ == tilewise::DType::kF32) {
        launch(cache, {q, k, v, out}, new_tokens);
    } else {
        const Narrow narrow = dtype_ == tilewise::DType::kF16 ? Narrow::kF16 : Narrow::kBF16;
        staging_.q.resize(q_floats);
        staging_.out.resize(q_floats);
        staging_.k.resize(kv_floats);
        staging_.v.resize(kv_floats);
        to_narrow(narrow, {q, q_floats}, staging_.q.data());
        to_narrow(narrow, {k, kv_floats}, staging_.k.data());
        to_narrow(narrow, {v, kv_floats}, staging_.v.data());
        launch(cache, {staging_.q.data(), staging_.k.data(), staging_.v.data(), staging_.out.data()}, new_tokens);
        from_narrow(narrow, staging_.out.data(), {out, q_floats});
    }
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

tilewise::Attention CachedAttention::describe(const Layer& layer, const Pointers& at, std::int64_t new_tokens) const {
    const std::int64_t d = heads_.head_dim;
    const std::int64_t pairs = heads_.rotary_dim / 2;
    const auto positions = static_cast<std::int64_t>(tables_.rotary_cos.size()) / pairs;
    const auto pages = static_cast<std::int64_t>(tables_.page_table.size());
    const tilewise::Shape cache = pages > 0 ? tilewise::Shape{pages, options_.page_size, heads_.num_heads_kv, d}
                                            : tilewise::Shape{1, positions, heads_.num_heads_kv, d};
    tilewise::Attention call;
    call.q = rows(at.q, dtype_, new_tokens, heads_.num_heads_q, d);
    call.k = {layer.k.data(), dtype_, cache};
    call.v = {layer.v.data(), dtype_, cache};
    call.o = rows(at.out, dtype_, new_tokens, heads_.num_heads_q, d);
    call.mask.causal = true;
    call.cache.cache_seqlens = {tables_.cache_seqlens};
    call.cache.k_new = rows(at.k, dtype_, new_tokens, heads_.num_heads_kv, d);
    call.cache.v_new = rows(at.v, dtype_, new_tokens, heads_.num_heads_kv, d);
    call.cache.rotary_cos = {tables_.rotary_cos, {positions, pairs}};
    call.cache.rotary_sin = {tables_.rotary_sin, {positions, pairs}};
    // Files of this architecture store the rows of the q and k projections so that neighbours (2t, 2t + 1) rotate
    // together. With the halves (t, t + 32) paired instead, the model ends its answer before the first word.
    call.cache.rotary_interleaved = true;
    if (pages > 0) {
        call.cache.page_table = {tables_.page_table, {1, pages}};
    }
    call.options.num_threads = options_.threads;
    call.options.kernel = options_.oracle ? kOracleKernel : "";
    return call;
}

void CachedAttention::launch(const Layer& layer, const Pointers& at, std::int64_t new_tokens) {
    const tilewise::Attention call = describe(layer, at, new_tokens);
    if (!plan_ || planned_tokens_ != new_tokens) {
        plan_.emplace(device_, tilewise::Op::kDecode, call);
        planned_tokens_ = new_tokens;
    }
    plan_->launch(call, workspace_);
}

std::string CachedAttention::description() const {
    const std::string cache =
        options_.cache_type +
        (options_.page_size > 0 ? " cache in pages of " + std::to_string(options_.page_size) : " cache");
    return (plan_ ? plan_->kernel() : std::string("no kernel yet")) + ", " + cache;
}

}  // namespace tilewise::generate
