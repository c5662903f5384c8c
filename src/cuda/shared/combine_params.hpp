// What the combine kernel reads; filled by combine.cpp.
#pragma once

#include "cuda/shared/tokens.hpp"

namespace tilewise::cuda {

// One part at a time, a partial tensor is an ordinary one: its first axis is a stride.
struct Parts {
    HeadTensor o;
    RowTensor lse;
    int64_t o_stride = 0;
    int64_t lse_stride = 0;
    int64_t count = 0;
};

struct CombineParams {
    Parts parts;
    HeadTensor o;
    RowTensor lse;
    HeadScalar sink;
    Tokens tokens;
    IntVector seqused_q;
    int32_t num_heads = 0;
    int32_t head_dim_v = 0;
    int32_t num_chunks = 0;     // pieces of head_dim_v, each a warp's width
    int32_t warps_of_unit = 1;  // 1, or all of a block: they share the parts of one row
    bool vector_o = false;      // a lane's columns of o are one access
};

constexpr int kCombineThreads = 128;
constexpr int kCombineWarps = kCombineThreads / 32;

// Columns that a warp merges at a time.
constexpr int32_t combine_columns(DType parts, bool vector) {
    return 32 * (vector ? 16 / static_cast<int32_t>(size_of(parts)) : 1);
}
// The kernel for partial outputs of a type, with 16-byte loads of them or not.
const void* combine_entry(DType parts, bool vector);

}  // namespace tilewise::cuda
