// What one block of the backward computes: a tile of keys of one kv head, against every row of the query heads that read it and see some
// of the keys. Its steps are (query head, tile of rows), heads upwards, rows downwards: blocks of neighbouring keys then read the same
// rows of q and dO at about the same time, and in a causal mask take their turns at dQ without waiting for the diagonal.
#pragma once

#include "cuda/attend/kv_source.cuh"
#include "cuda/attend/rows_of_keys.cuh"
#include "cuda/sm80/bwd_traits.hpp"

namespace tilewise::cuda::sm80 {

// In shared memory: needed before and after the main loop, and in it by slow paths only.
struct BackwardBlock {
    Sequence sequence;
    IntervalMask mask;
    KvSource q, o;  // rows of query head 0 of q and of dO
    int32_t batch = 0;
    int32_t head_kv = 0;
    int32_t first_head = 0;
    int32_t num_heads = 0;
    int32_t split = 0;  // which part of the group's query heads
    int32_t first_key = 0;
    Interval rows;           // of queries, as whole tiles
    int64_t order_tile = 0;  // of the sequence's first row tile in scratch.order
};
static_assert(sizeof(BackwardBlock) <= kBackwardBlockBytes);

struct BackwardStep {
    int32_t row = 0;   // first query row
    int32_t head = 0;  // query head
};
template <int kTileM> __device__ __forceinline__ BackwardStep step_after(BackwardStep step, Interval rows) {
    return step.row == rows.begin ? BackwardStep{rows.end - kTileM, step.head + 1}
                                  : BackwardStep{step.row - kTileM, step.head};
}

template <int kTileM> __device__ __forceinline__ BackwardStep step_before(BackwardStep step, Interval rows) {
    return step.row == rows.end - kTileM ? BackwardStep{rows.begin, step.head - 1}
                                         : BackwardStep{step.row + kTileM, step.head};
}

struct RowOrigin {
    int64_t batch = 0;
    int64_t row = 0;
    int64_t head = 0;
    int32_t count = 0;
};
__device__ inline KvSource dense_source(const HeadTensor& tensor, RowOrigin origin, int32_t num_columns, bool vector) {
    KvSource source;
    source.rows = static_cast<const char*>(tensor.data) + tensor.offset(origin.batch, origin.row, origin.head) * 2;
    source.row_bytes = tensor.row_stride * 2;
    source.dim_stride = tensor.dim_stride;
    source.num_keys = origin.count;
    source.num_columns = num_columns;
    source.vector = vector;
    return source;
}

// The block's place; `rows` is still missing. num_splits counts the parts into which a group's query heads are divided. The lowest keys come
// first: they have the most rows where the mask is causal, and whoever waits for its turn waits for a block of a lower number.
template <class Traits> __device__ inline BackwardBlock block_of(const BackwardParams& params, uint32_t number) {
    const TileMap& map = params.tiles;
    const AttentionView& view = params.view;
    const TilePlace place = place_of_block(map, number);
    BackwardBlock block;
    int64_t tile = map.num_tiles - 1 - place.tile;
    block.batch = static_cast<int32_t>(place.head / static_cast<uint32_t>(map.num_heads));
    block.head_kv = static_cast<int32_t>(place.head % static_cast<uint32_t>(map.num_heads));
    if (map.ragged) {
        block.batch = find_sequence(view.sequences.cu_seqlens_k, map.batch, map.tile_m, tile);
        tile -= first_tile_of(view.sequences.cu_seqlens_k, block.batch, map.tile_m);
    }
    const Sequence& s = block.sequence = resolve_sequence(view.sequences, block.batch);
    block.mask = view.mask_of(block.batch, s);
    block.split = static_cast<int32_t>(place.split);
    block.num_heads = map.gqa_ratio / map.num_splits;
    block.first_head = block.head_kv * map.gqa_ratio + block.split * block.num_heads;
    block.first_key = static_cast<int32_t>(tile * map.tile_m);
    block.q = dense_source(view.q, {s.q_batch, s.q_row, 0, s.seqlen_q}, params.dims.head_dim, params.dims.vector_q);
    block.o =
        dense_source(params.grad.o, {s.q_batch, s.q_row, 0, s.seqlen_q}, params.dims.head_dim_v, params.dims.vector_o);
    const IntVector& cu_seqlens_q = view.sequences.cu_seqlens_q;
    block.order_tile = cu_seqlens_q.given() ? first_tile_of(cu_seqlens_q, block.batch, Traits::kShape.tile_m)
                                            : block.batch * ceil_div(view.sequences.seqlen_q, Traits::kShape.tile_m);
    return block;
}

// Rows whose explicit intervals meet the keys, inside of `rows`; by all threads, ends with a barrier. `hulls`: one a warp.
template <class Traits>
__device__ inline Interval explicit_rows(const AttentionView& view, const BackwardBlock& block, Interval rows,
                                         Interval* hulls) {
    const int32_t end_key = block.first_key + Traits::kShape.tile_n;
    Interval hull = {kMaxSeqlen, 0};
    for (int32_t row = rows.begin + static_cast<int32_t>(threadIdx.x); row < rows.end; row += Traits::kThreads) {
        const Interval keys = view.keys_of(block.mask, block.batch, block.sequence, row);
        if (!is_empty(keys) && keys.begin < end_key && keys.end > block.first_key)
            hull = {min(hull.begin, row), max(hull.end, row + 1)};
    }
    hull = {__reduce_min_sync(0xffffffffu, hull.begin), __reduce_max_sync(0xffffffffu, hull.end)};
    if (threadIdx.x % 32 == 0) hulls[threadIdx.x / 32] = hull;
    __syncthreads();
    for (int w = 0; w < Traits::kWarps; ++w) hull = {min(hull.begin, hulls[w].begin), max(hull.end, hulls[w].end)};
    return is_empty(hull) ? Interval{0, 0} : hull;
}

// Rows that see some of the block's keys, as whole tiles.
template <class Traits>
__device__ inline Interval rows_of_block(const BackwardParams& params, const BackwardBlock& block, Interval* hulls) {
    constexpr int kTileM = Traits::kShape.tile_m;
    const Sequence& s = block.sequence;
    const int32_t end_key = min(block.first_key + Traits::kShape.tile_n, s.seqlen_k);
    Interval rows = visiting_rows(block.mask, s.seqlen_q, {block.first_key, end_key});
    // Turns are counted by position alone (turn_of), so with an order a block comes to every tile that its bounds touch.
    if (params.scratch.order == nullptr) {
        if (is_empty(rows)) return {0, 0};
        if (has_row_intervals(params.view)) rows = explicit_rows<Traits>(params.view, block, rows, hulls);
    }
    const int32_t begin = rows.begin / kTileM * kTileM, end = (rows.end + kTileM - 1) / kTileM * kTileM;
    return {begin, max(begin, end)};
}

// Rows that see every key of [first_key, first_key + 32): tiles inside need no masking. Rows past the last query count: their q, dO, lse and
// delta are zeros, so that they add nothing.
__device__ inline Interval interior_rows(const AttentionView& view, const BackwardBlock& block, int32_t first_key) {
    const Sequence& s = block.sequence;
    if (has_row_intervals(view) || first_key + 32 > s.seqlen_k) return {0, 0};
    return rows_that_see_all(block.mask, s.seqlen_q, {first_key, first_key + 32});
}

// How many blocks add to dQ of the row tile at `row` before this one: those of lower keys that visit it, by position.
template <class Traits> __device__ inline int32_t turn_of(const BackwardBlock& block, int32_t row) {
    const int32_t end = min(row + Traits::kShape.tile_m, block.sequence.seqlen_q);
    const int32_t first = visit_range(block.mask, row, end).begin / Traits::kShape.tile_n;
    return block.first_key / Traits::kShape.tile_n - first;
}

}  // namespace tilewise::cuda::sm80
