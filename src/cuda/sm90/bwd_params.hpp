// What a launch of the backward hands to its kernels.
#pragma once

#include <cuda.h>

#include "cuda/common/params.hpp"

namespace tilewise::cuda::sm90 {

// f32 scratch, by tiles of query rows: those of all sequences are numbered through, and a head has `num_tiles` of them. Rows that a tile has and
// no sequence has lse +inf.
struct RowTiles {
    float* lse_log2 = nullptr;  // (head, tile, row)
    float* delta = nullptr;     // (head, tile, row): rowsum(dO * O) - grad_lse
    // Sums of dQ as wgmma holds dQ^T: (head, tile, 64 columns of d, 8 rows, thread of 128, float4).
    float* dq = nullptr;
    int32_t* turns = nullptr;  // (head, tile): blocks that have added to dq; null: they add in any order
    int64_t num_tiles = 0;
    int32_t tile_m = 0;

    TILEWISE_HD int64_t index(int64_t head, int64_t tile) const { return head * num_tiles + tile; }
};

// For the blocks of two passes that make dQ: boxes of their rows, and of the keys of a step; tiles of their rows.
struct QueryPassParams {
    CUtensorMap q, grad_o, k, v;
    TileMap tiles;
};

struct BulkBackwardParams {
    // (column, head, row, batch); boxes: panels of a row tile, of a block's keys, of a warpgroup's keys.
    CUtensorMap q, k, v, grad_o, grad_k, grad_v;
    QueryPassParams second;
    BackwardParams base;  // scratch unused
    RowTiles rows;
    int64_t rows_of_q = 0, rows_of_k = 0;  // row axes of the maps
    bool is_band = false;                  // the mask is a band along the diagonal
};

}  // namespace tilewise::cuda::sm90
