// What one block of the backward computes: some keys of a kv head, against every row of the query heads that read it and see some of the keys. Its
// steps are (query head, tile of rows), heads upwards, rows downwards, so that blocks of neighbouring keys read the same rows at about the
// same time, and in a causal mask take their turns at dQ without waiting for the diagonal.
#pragma once

#include "cuda/attend/row_tile.cuh"
#include "cuda/attend/rows_of_keys.cuh"
#include "cuda/ptx/bulk.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/sm90/bwd_params.hpp"
#include "cuda/sm90/bwd_traits.hpp"

namespace tilewise::cuda::sm90 {

// In shared memory.
struct KeyBlock {
    Sequence sequence;
    IntervalMask mask;
    int32_t batch = 0;
    int32_t head_kv = 0;
    int32_t first_key = 0;
    int32_t first_head = 0;
    int32_t num_heads = 0;
    Interval tiles;                      // of query rows, of the sequence
    int64_t first_tile = 0;              // number of the sequence's first row tile
    Interval interior[kBackwardGroups];  // tiles in which every row sees every key of the warpgroup
    __device__ __forceinline__ int32_t num_steps() const { return (tiles.end - tiles.begin) * num_heads; }
};
static_assert(sizeof(KeyBlock) <= kKeyBlockBytes);

struct BackwardStep {
    int32_t tile = 0;
    int32_t head = 0;
};
__device__ __forceinline__ BackwardStep first_step(const KeyBlock& block) {
    return {block.tiles.end - 1, block.first_head};
}
__device__ __forceinline__ BackwardStep step_after(BackwardStep step, Interval tiles) {
    return step.tile == tiles.begin ? BackwardStep{tiles.end - 1, step.head + 1}
                                    : BackwardStep{step.tile - 1, step.head};
}

// Rows that see some key of [first, end), and rows that see all of them; a row past the last query counts as either.
__device__ inline Interval rows_that_see_some(const BulkBackwardParams& params, const KeyBlock& b, Interval keys) {
    const int32_t seqlen_q = b.sequence.seqlen_q;
    if (is_empty(keys) || seqlen_q == 0) return {0, 0};
    if (!params.is_band) return visiting_rows(b.mask, seqlen_q, keys);
    const int64_t begin = int64_t{keys.begin} - b.mask.offset - b.mask.right;
    const int64_t end = int64_t{keys.end} - b.mask.offset + b.mask.left;
    const int64_t first = clamp_to<int64_t>(begin, 0, seqlen_q);
    return {static_cast<int32_t>(first), static_cast<int32_t>(clamp_to<int64_t>(end, first, seqlen_q))};
}
__device__ inline Interval rows_that_see_all(const BulkBackwardParams& params, const KeyBlock& b, Interval keys) {
    const Sequence& s = b.sequence;
    if (has_row_intervals(params.base.view) || keys.end > s.seqlen_k) return {0, 0};
    const int32_t offset = b.mask.offset;
    if (params.is_band) {
        const int64_t begin = int64_t{keys.end} - 1 - offset - b.mask.right;
        const int64_t end = int64_t{keys.begin} - offset + b.mask.left + 1;
        return {static_cast<int32_t>(clamp_to<int64_t>(begin, 0, kMaxSeqlen)),
                end >= s.seqlen_q ? kMaxSeqlen : static_cast<int32_t>(max_of<int64_t>(end, 0))};
    }
    return cuda::rows_that_see_all(b.mask, s.seqlen_q, keys);
}

// Of the rows, those whose explicit intervals meet the block's keys; by all threads, ends with a barrier. `hull`: in shared memory.
template <class Traits>
__device__ inline Interval explicit_rows(const AttentionView& view, const KeyBlock& b, Interval rows, Interval* hull) {
    if (threadIdx.x == 0) *hull = {kMaxSeqlen, 0};
    __syncthreads();
    const int32_t end_key = b.first_key + Traits::kKeys;
    for (int32_t row = rows.begin + static_cast<int32_t>(threadIdx.x); row < rows.end; row += Traits::kThreads) {
        const Interval keys = view.keys_of(b.mask, b.batch, b.sequence, row);
        if (is_empty(keys) || keys.begin >= end_key || keys.end <= b.first_key) continue;
        atomicMin(&hull->begin, row);
        atomicMax(&hull->end, row + 1);
    }
    __syncthreads();
    return is_empty(*hull) ? Interval{0, 0} : *hull;
}

// The lowest keys come first: they have the most rows where the mask is causal, and whoever waits for its turn waits for a block of a
// lower number. By all threads; false for a block without keys.
template <class Traits>
__device__ inline bool find_block(const BulkBackwardParams& params, uint32_t number, KeyBlock& b, Interval* hull) {
    constexpr int kTileM = Traits::kTileM;
    const TileMap& map = params.base.tiles;
    const AttentionView& view = params.base.view;
    const TilePlace place = place_of_block(map, number);
    int64_t tile = map.num_tiles - 1 - place.tile;
    b.batch = static_cast<int32_t>(place.head / static_cast<uint32_t>(map.num_heads));
    b.head_kv = static_cast<int32_t>(place.head % static_cast<uint32_t>(map.num_heads));
    if (map.ragged) {
        b.batch = find_sequence(view.sequences.cu_seqlens_k, map.batch, map.tile_m, tile);
        tile -= first_tile_of(view.sequences.cu_seqlens_k, b.batch, map.tile_m);
    }
    const Sequence& s = b.sequence = resolve_sequence(view.sequences, b.batch);
    b.first_key = static_cast<int32_t>(tile * Traits::kKeys);
    if (b.first_key >= s.seqlen_k) return false;
    b.mask = view.mask_of(b.batch, s);
    b.num_heads = map.gqa_ratio;
    b.first_head = b.head_kv * map.gqa_ratio;
    const IntVector& cu_seqlens_q = view.sequences.cu_seqlens_q;
    b.first_tile = cu_seqlens_q.given() ? first_tile_of(cu_seqlens_q, b.batch, kTileM)
                                        : b.batch * ceil_div(view.sequences.seqlen_q, kTileM);
    Interval rows = rows_that_see_some(params, b, {b.first_key, min(b.first_key + Traits::kKeys, s.seqlen_k)});
    // Turns are counted by position alone, so with turns a block comes to every tile that its bounds touch.
    if (has_row_intervals(view) && params.rows.turns == nullptr) rows = explicit_rows<Traits>(view, b, rows, hull);
    b.tiles = {rows.begin / kTileM, is_empty(rows) ? rows.begin / kTileM : (rows.end + kTileM - 1) / kTileM};
#pragma unroll
    for (int group = 0; group < Traits::kKeyGroups; ++group) {
        const int32_t first = b.first_key + group * kGroupRows;
        const Interval all = rows_that_see_all(params, b, {first, first + kGroupRows});
        b.interior[group] = {(all.begin + kTileM - 1) / kTileM, all.end / kTileM};
    }
    return true;
}

// The start of a block: its first thread describes it in shared memory and makes its barriers. By all threads; false for one without keys.
template <class Traits, class Init>
__device__ __forceinline__ bool enter_key_block(const BulkBackwardParams& params, unsigned char* shared,
                                                KeyBlock& block, Init init_barriers) {
    KeyBlock found;
    Interval* const hull = reinterpret_cast<Interval*>(shared + Traits::kHullOffset);
    if (!find_block<Traits>(params, blockIdx.x, found, hull)) return false;
    if (threadIdx.x == 0) {
        block = found;
        init_barriers();
        ptx::fence_barrier_init();
        for (const CUtensorMap* map : {&params.q, &params.k, &params.v, &params.grad_o}) ptx::prefetch_tensor_map(map);
    }
    __syncthreads();
    return true;
}

// How many blocks add to dQ of the row tile before this one: those of lower keys that visit it, by position.
template <class Traits> __device__ inline int32_t turn_of(const KeyBlock& b, int32_t tile) {
    const int32_t row = tile * Traits::kTileM, end = min(row + Traits::kTileM, b.sequence.seqlen_q);
    return b.first_key / Traits::kKeys - visit_range(b.mask, row, end).begin / Traits::kKeys;
}

}  // namespace tilewise::cuda::sm90
