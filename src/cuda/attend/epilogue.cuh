// The end of a row tile: accumulators times a factor a row -> 16-bit rows in shared memory, or f32 partial results of a key range.
#pragma once

#include "cuda/attend/query_rows.cuh"
#include "cuda/attend/row_tile.cuh"
#include "cuda/attend/score_tile.cuh"
#include "cuda/tile/element.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace tilewise::cuda {

// Row of the tile -> index of (q batch, q row, head) flattened, as PartialOutput and BackwardScratch count.
__device__ __forceinline__ int64_t flat_row(const RowTile& t, int32_t row, int64_t rows_per_batch, int64_t num_heads) {
    return (t.sequence.q_batch * rows_per_batch + t.sequence.q_row + t.query_of(row)) * num_heads + t.head_of(row);
}

template <class Element, class Tile, int kMBlocks, int kVBlocks>
__device__ inline void stage_rows(const Tile& staged, const float (&o)[kMBlocks][kVBlocks][4],
                                  const float (&factor)[2 * kMBlocks]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t to = staged.at(lane / 4, lane % 4 * 2);
#pragma unroll
    for (int m = 0; m < kMBlocks; ++m)
#pragma unroll
        for (int v = 0; v < kVBlocks; ++v)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float f = factor[2 * m + half];
                ptx::store_shared_4(Tile::moved(to, v) + (m * 16 + half * 8) * Tile::kPitch,
                                    tile::Products<Element>::pack(o[m][v][2 * half] * f, o[m][v][2 * half + 1] * f));
            }
}

// f32 rows of one split; `first` is the warp's first row in the tile.
template <int kMBlocks, int kVBlocks>
__device__ inline void store_partial(const ForwardParams& params, const RowTile& t,
                                     const float (&o)[kMBlocks][kVBlocks][4], const float (&factor)[2 * kMBlocks],
                                     int32_t first) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int r = 0; r < 2 * kMBlocks; ++r) {
        const int32_t row = first + accumulator_row(r, lane);
        if (row >= t.num_rows) continue;
        const int64_t flat = flat_row(t, row, params.partial.rows_per_batch, params.view.sizes.num_heads_q);
        float* const to = params.partial.o + (t.split * params.partial.num_rows + flat) * params.view.sizes.head_dim_v +
                          params.dims.first_column_v;
#pragma unroll
        for (int v = 0; v < kVBlocks; ++v)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int column = v * 8 + lane % 4 * 2 + e;
                if (column < params.dims.head_dim_v) to[column] = o[r / 2][v][r % 2 * 2 + e] * factor[r];
            }
    }
}

// Values that the quads hold a row (r as accumulator_row counts) -> the lane that has the row's number, and back.
template <int kMBlocks> __device__ __forceinline__ float to_lane_row(const float (&value)[2 * kMBlocks]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float mine = 0.0f;
#pragma unroll
    for (int r = 0; r < 2 * kMBlocks; ++r) {
        const float x = __shfl_sync(0xffffffffu, value[r], lane % 8 * 4);
        if (lane / 8 == r) mine = x;
    }
    return mine;
}

// lse of the lane's row, to the output or to the partial results.
__device__ inline void store_lse(const ForwardParams& params, const RowTile& t, const LaneRow& row, float lse) {
    if (!row.exists || params.dims.first_column_v > 0) return;
    if (params.tiles.num_splits > 1) {
        const int64_t flat = (t.sequence.q_batch * params.partial.rows_per_batch + t.sequence.q_row + row.query) *
                                 params.view.sizes.num_heads_q +
                             row.head;
        params.partial.lse[t.split * params.partial.num_rows + flat] = lse;
    } else if (params.view.lse.given()) {
        static_cast<float*>(
            params.view.lse.data)[params.view.lse.offset(t.sequence.q_batch, row.head, t.sequence.q_row + row.query)] =
            lse;
    }
}

}  // namespace tilewise::cuda
