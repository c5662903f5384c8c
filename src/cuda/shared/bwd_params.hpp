// What the kernels before and after a backward read; filled by bwd_prologue.cpp and bwd_epilogue.cpp.
#pragma once

#include "cuda/common/params.hpp"
#include "cuda/shared/tokens.hpp"

namespace tilewise::cuda {

constexpr int kBackwardRowThreads = 256;

// delta, lse_log2, dq = 0; zeros in grad_q where there is no dq and no sequence.
struct PrologueParams {
    BackwardParams backward;
    Tokens tokens;
    int32_t lanes_of_row = 32;  // a power of two, 4 to 32
};
const void* prologue_entry(DType dtype, bool vector);

// dk = dv = 0; zeros in grad_k and grad_v where there are no dk and dv and a key is of no sequence.
struct KeyPrologueParams {
    BackwardParams backward;
    Tokens tokens;
    bool any_unused = false;  // false: every row of k is a key of its sequence
};
const void* key_prologue_entry();

// grad_sink[head] = - sum over rows of exp(sink - lse) * delta, in two stages: tokens [chunk * kTokensOfChunk, ...) first.
constexpr int64_t kTokensOfChunk = 1024;
struct SinkParams {
    HeadScalar sink;
    const float* delta = nullptr;  // as in BackwardScratch
    const float* lse_log2 = nullptr;
    float* sums = nullptr;  // (chunks, heads)
    float* grad_sink = nullptr;
    int64_t grad_stride = 0;
    int64_t num_tokens = 0;
    int64_t head_rows = 1;
    int64_t num_chunks = 0;
    int32_t num_heads = 0;
};
const void* sink_chunks_entry();
const void* sink_total_entry();

// factor * sum over parts of from (parts, tokens, heads, dim) f32 -> a gradient.
struct EpilogueParams {
    const float* from = nullptr;
    HeadTensor to;
    int64_t rows_per_batch = 0;  // tokens of one batch index
    int64_t num_tokens = 0;
    int32_t num_heads = 0;
    int32_t dim = 0;
    float factor = 1.0f;
    int32_t lanes_of_row = 32;
    int32_t num_parts = 1;  // tensors behind each other in `from`, added in this order
};
const void* epilogue_entry(DType dtype, bool vector);

}  // namespace tilewise::cuda
