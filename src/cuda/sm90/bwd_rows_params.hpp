// What the kernels around a backward's tiles read.
#pragma once

#include "cuda/sm90/bwd_params.hpp"

namespace tilewise::cuda::sm90 {

constexpr int kPrologueThreads = 256;
constexpr int kPrologueRows = 4;  // rows a lane group works on at once

// delta, lse_log2, dq = 0, turns = 0 of every row of every row tile; without a dq, zeros in rows of grad_q that no sequence uses. A block: a run
// of rows of one head.
struct BulkPrologueParams {
    AttentionView view;
    HeadTensor grad_o, grad_q;
    RowTensor grad_lse;
    RowTiles rows;
    int32_t panels = 1;         // of 64 columns in dq
    int32_t lanes_of_row = 32;  // a power of two
};
const void* bulk_prologue_entry(DType dtype);

// grad_q = factor * dq, rounded; zeros in rows that no sequence uses. A block: a row tile of one head.
struct BulkEpilogueParams {
    AttentionView view;
    HeadTensor grad_q;
    RowTiles rows;
    float factor = 1.0f;
};
// Rows of a tile for which there is one: 32, 64, 96.
const void* bulk_epilogue_entry(DType dtype, int32_t tile_m);
inline int32_t bulk_epilogue_bytes(int32_t tile_m, int32_t panels) { return tile_m * panels * 128; }

}  // namespace tilewise::cuda::sm90
