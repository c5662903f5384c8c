// What a call computes: the C++ mirror of tilewise_attention and tilewise_combination; include tilewise/tilewise.hpp.
//
// The structs follow tilewise.h field by field; shapes and meanings are documented there. Designated initialisers go in the order
// of declaration; what is left out is not given or off. Flags of the C structs are booleans and optionals here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tilewise/tensor.hpp"

namespace tilewise {
inline namespace v0 {

struct Lengths {
    Tensor cu_seqlens_q{};
    Tensor cu_seqlens_k{};
    Tensor seqused_q{};
    Tensor seqused_k{};
    Tensor leftpad_k{};
    std::int64_t max_seqlen_q = 0;
    std::int64_t max_seqlen_k = 0;
};

struct Mask {
    bool causal = false;
    std::optional<std::int64_t> window_left{};   // keys back from the diagonal, inclusive; none or -1: unlimited
    std::optional<std::int64_t> window_right{};  // keys ahead of the diagonal, inclusive; only 0 with causal
    bool top_left = false;  // the diagonal starts at (0, 0); otherwise it ends at the last row and key
    std::int32_t chunk = 0;
    std::int64_t prefix = 0;
    std::int64_t block = 0;
    Tensor prefix_lens{};
    Tensor mask{};
    Tensor key_begin{};
    Tensor key_end{};
};

struct Score {
    std::optional<float> softmax_scale{};  // none: head_dim^-0.5
    float softcap = 0.0f;
    float dropout_p = 0.0f;
    std::uint64_t dropout_seed = 0;
    std::uint64_t dropout_offset = 0;
    Tensor alibi_slopes{};
    Tensor bias{};
    Tensor sink{};
};

struct Cache {
    Tensor cache_seqlens{};
    Tensor cache_batch_idx{};
    Tensor page_table{};
    Tensor k_new{};
    Tensor v_new{};
    Tensor cu_seqlens_k_new{};
    Tensor rotary_cos{};
    Tensor rotary_sin{};
    Tensor rotary_seqlens{};
    bool rotary_interleaved = false;
    Tensor error_flag{};
};

struct Gradients {
    Tensor grad_o{};
    Tensor grad_lse{};
    Tensor grad_q{};
    Tensor grad_k{};
    Tensor grad_v{};
    Tensor grad_bias{};
    Tensor grad_sink{};
};

struct Options {
    bool deterministic = false;
    bool batch_invariant = false;
    std::int32_t num_splits = 0;
    std::int32_t num_threads = 0;
    std::string kernel{};  // pins a kernel by its name; empty: the plan chooses
};

struct Attention {
    Tensor q{};
    Tensor k{};
    Tensor v{};
    Tensor o{};
    Tensor lse{};
    Lengths lengths{};
    Mask mask{};
    Score score{};
    Cache cache{};
    Gradients gradients{};
    Options options{};
};

struct Combination {
    Tensor partial_o{};
    Tensor partial_lse{};
    Tensor o{};
    Tensor lse{};
    Options options{};
};

namespace detail {
inline tilewise_mask to_c(const Mask& mask) {
    tilewise_mask c{};
    if (mask.causal) c.flags |= TILEWISE_MASK_CAUSAL;
    if (mask.top_left) c.flags |= TILEWISE_MASK_TOP_LEFT;
    if (mask.window_left || mask.window_right) {
        c.flags |= TILEWISE_MASK_WINDOW;
        c.window_left = mask.window_left.value_or(-1);
        c.window_right = mask.window_right.value_or(mask.causal ? 0 : -1);
    }
    c.chunk = mask.chunk;
    c.prefix = mask.prefix;
    c.block = mask.block;
    c.prefix_lens = mask.prefix_lens.c();
    c.mask = mask.mask.c();
    c.key_begin = mask.key_begin.c();
    c.key_end = mask.key_end.c();
    return c;
}
inline tilewise_score to_c(const Score& score) {
    return {score.softmax_scale ? std::uint32_t{TILEWISE_SCORE_HAS_SCALE} : 0u,
            score.softmax_scale.value_or(0.0f),
            score.softcap,
            score.dropout_p,
            score.dropout_seed,
            score.dropout_offset,
            score.alibi_slopes.c(),
            score.bias.c(),
            score.sink.c()};
}
inline tilewise_options to_c(const Options& options) {
    const std::uint32_t flags = (options.deterministic ? std::uint32_t{TILEWISE_DETERMINISTIC} : 0u) |
                                (options.batch_invariant ? std::uint32_t{TILEWISE_BATCH_INVARIANT} : 0u);
    return {flags, options.num_splits, options.num_threads, options.kernel.empty() ? nullptr : options.kernel.c_str()};
}
inline tilewise_lengths to_c(const Lengths& x) {
    return {x.cu_seqlens_q.c(), x.cu_seqlens_k.c(), x.seqused_q.c(), x.seqused_k.c(),
            x.leftpad_k.c(),    x.max_seqlen_q,     x.max_seqlen_k};
}
inline tilewise_cache to_c(const Cache& x) {
    return {x.cache_seqlens.c(),  x.cache_batch_idx.c(),        x.page_table.c(), x.k_new.c(),
            x.v_new.c(),          x.cu_seqlens_k_new.c(),       x.rotary_cos.c(), x.rotary_sin.c(),
            x.rotary_seqlens.c(), x.rotary_interleaved ? 1 : 0, x.error_flag.c()};
}
inline tilewise_gradients to_c(const Gradients& x) {
    return {x.grad_o.c(), x.grad_lse.c(), x.grad_q.c(), x.grad_k.c(), x.grad_v.c(), x.grad_bias.c(), x.grad_sink.c()};
}
}  // namespace detail

// The C form of a call. It points into `attention` (options.kernel), which must outlive it.
inline tilewise_attention to_c(const Attention& x) {
    return {sizeof(tilewise_attention),
            x.q.c(),
            x.k.c(),
            x.v.c(),
            x.o.c(),
            x.lse.c(),
            detail::to_c(x.lengths),
            detail::to_c(x.mask),
            detail::to_c(x.score),
            detail::to_c(x.cache),
            detail::to_c(x.gradients),
            detail::to_c(x.options)};
}
inline tilewise_combination to_c(const Combination& x) {
    return {sizeof(tilewise_combination), x.partial_o.c(), x.partial_lse.c(), x.o.c(), x.lse.c(),
            detail::to_c(x.options)};
}

}  // namespace v0
}  // namespace tilewise
