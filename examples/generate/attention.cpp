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

template <class T> tilewise::DeviceMemory copied(const tilewise::Device& device, const std::vector<T>& host) {
    tilewise::DeviceMemory memory(device, host.size() * sizeof(T));
    tilewise::copy(device, memory.data(), host.data(), memory.size());
    tilewise::synchronize(device);
    return memory;
}

void reserve(const tilewise::Device& device, std::size_t bytes, tilewise::DeviceMemory& memory) {
    if (memory.size() < bytes) {
        memory = tilewise::DeviceMemory(device, bytes);
    }
}

}  // namespace

CachedAttention::CachedAttention(const HeadShape& heads, std::int64_t layers, std::int64_t capacity,
                                 const AttentionOptions& options)
    : heads_(heads), options_(options), dtype_(dtype_of(options.cache_type)), device_(options.device) {
    make_tables(capacity);
    const std::int64_t slots = tables_.pages > 0 ? tables_.pages * options_.page_size : capacity;
    const std::int64_t bytes = slots * heads_.num_heads_kv * heads_.head_dim * tilewise::size_of(dtype_);
    for (std::int64_t i = 0; i < layers; ++i) {
        const auto make = [&] { return tilewise::DeviceMemory(device_, static_cast<std::size_t>(bytes)); };
        layers_.push_back({make(), make()});
    }
}

void CachedAttention::make_tables(std::int64_t capacity) {
    const std::int64_t pairs = heads_.rotary_dim / 2;
    std::vector<float> cosines, sines;
    for (std::int64_t position = 0; position < capacity; ++position) {
        for (std::int64_t pair = 0; pair < pairs; ++pair) {
            const double exponent = static_cast<double>(pair) / static_cast<double>(pairs);
            const double angle = static_cast<double>(position) * std::pow(heads_.rotary_base, -exponent);
            cosines.push_back(static_cast<float>(std::cos(angle)));
            sines.push_back(static_cast<float>(std::sin(angle)));
        }
    }
    std::vector<std::int32_t> page_table;
    if (options_.page_size > 0) {
        // Backwards through memory: a page table in rising order would hide a kernel that ignores it.
        page_table.resize(static_cast<std::size_t>((capacity + options_.page_size - 1) / options_.page_size));
        std::iota(page_table.rbegin(), page_table.rend(), 0);
    }
    tables_.positions = capacity;
    tables_.pages = static_cast<std::int64_t>(page_table.size());
    tables_.rotary_cos = copied(device_, cosines);
    tables_.rotary_sin = copied(device_, sines);
    tables_.page_table = copied(device_, page_table);
    tables_.cache_seqlens = tilewise::DeviceMemory(device_, sizeof tables_.length);
    set_length();
}

void CachedAttention::set_length() {
    tilewise::copy(device_, tables_.cache_seqlens.data(), &tables_.length, sizeof tables_.length);
    tilewise::synchronize(device_);
}

void CachedAttention::advance(std::int64_t new_tokens) {
    tables_.length += static_cast<std::int32_t>(new_tokens);
    set_length();
}

void CachedAttention::attend(std::int64_t layer, const float* q, const float* k, const float* v,
                             std::int64_t new_tokens, float* out) {
    const auto start = std::chrono::steady_clock::now();
    const Layer& cache = layers_[static_cast<std::size_t>(layer)];
    const auto q_floats = static_cast<std::size_t>(new_tokens * heads_.num_heads_q * heads_.head_dim);
    const auto kv_floats = static_cast<std::size_t>(new_tokens * heads_.num_heads_kv * heads_.head_dim);
    if (dtype_ == tilewise::DType::kF32) {
        launch_there(cache, {q, k, v, out}, new_tokens);
    } else {
        const Narrow narrow = dtype_ == tilewise::DType::kF16 ? Narrow::kF16 : Narrow::kBF16;
        staging_.q.resize(q_floats);
        staging_.out.resize(q_floats);
        staging_.k.resize(kv_floats);
        staging_.v.resize(kv_floats);
        to_narrow(narrow, {q, q_floats}, staging_.q.data());
        to_narrow(narrow, {k, kv_floats}, staging_.k.data());
        to_narrow(narrow, {v, kv_floats}, staging_.v.data());
        launch_there(cache, {staging_.q.data(), staging_.k.data(), staging_.v.data(), staging_.out.data()}, new_tokens);
        from_narrow(narrow, staging_.out.data(), {out, q_floats});
    }
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

tilewise::Attention CachedAttention::describe(const Layer& layer, const Pointers& at, std::int64_t new_tokens) const {
    const std::int64_t d = heads_.head_dim;
    const std::int64_t pairs = heads_.rotary_dim / 2;
    const bool paged = tables_.pages > 0;
    const tilewise::Shape cache = paged ? tilewise::Shape{tables_.pages, options_.page_size, heads_.num_heads_kv, d}
                                        : tilewise::Shape{1, tables_.positions, heads_.num_heads_kv, d};
    tilewise::Attention call;
    call.q = rows(at.q, dtype_, new_tokens, heads_.num_heads_q, d);
    call.k = {layer.k.data(), dtype_, cache};
    call.v = {layer.v.data(), dtype_, cache};
    call.o = rows(at.out, dtype_, new_tokens, heads_.num_heads_q, d);
    call.mask.causal = true;
    call.cache.cache_seqlens = {tables_.cache_seqlens.data(), tilewise::DType::kI32, {1}};
    call.cache.k_new = rows(at.k, dtype_, new_tokens, heads_.num_heads_kv, d);
    call.cache.v_new = rows(at.v, dtype_, new_tokens, heads_.num_heads_kv, d);
    const tilewise::Shape table{tables_.positions, pairs};
    call.cache.rotary_cos = {tables_.rotary_cos.data(), tilewise::DType::kF32, table};
    call.cache.rotary_sin = {tables_.rotary_sin.data(), tilewise::DType::kF32, table};
    // Files of this architecture store the rows of the q and k projections so that neighbours (2t, 2t + 1) rotate
    // together. With the halves (t, t + 32) paired instead, the model ends its answer before the first word.
    call.cache.rotary_interleaved = true;
    if (paged) {
        call.cache.page_table = {tables_.page_table.data(), tilewise::DType::kI32, {1, tables_.pages}};
    }
    call.options.num_threads = options_.threads;
    call.options.kernel = options_.oracle ? kOracleKernel : "";
    return call;
}

void CachedAttention::launch_there(const Layer& layer, const Pointers& host, std::int64_t new_tokens) {
    if (device_.is_host()) {
        launch(layer, host, new_tokens);
        return;
    }
    const auto element = static_cast<std::size_t>(tilewise::size_of(dtype_));
    const auto q_bytes = static_cast<std::size_t>(new_tokens * heads_.num_heads_q * heads_.head_dim) * element;
    const auto kv_bytes = static_cast<std::size_t>(new_tokens * heads_.num_heads_kv * heads_.head_dim) * element;
    reserve(device_, q_bytes, on_device_.q);
    reserve(device_, q_bytes, on_device_.out);
    reserve(device_, kv_bytes, on_device_.k);
    reserve(device_, kv_bytes, on_device_.v);
    tilewise::copy(device_, on_device_.q.data(), host.q, q_bytes);
    tilewise::copy(device_, on_device_.k.data(), host.k, kv_bytes);
    tilewise::copy(device_, on_device_.v.data(), host.v, kv_bytes);
    launch(layer, {on_device_.q.data(), on_device_.k.data(), on_device_.v.data(), on_device_.out.data()}, new_tokens);
    tilewise::copy(device_, host.out, on_device_.out.data(), q_bytes);
    tilewise::synchronize(device_);
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
    const std::string place = device_.is_host() ? "" : " on " + options_.device;
    return (plan_ ? plan_->kernel() : std::string("no kernel yet")) + place + ", " + cache;
}

}  // namespace tilewise::generate
