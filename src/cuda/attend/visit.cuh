// The keys that a tile's rows see: one interval a row in shared memory, its hull for a warp and for the block, and the keys that need no
// masking because every row of the warp sees them.
#pragma once

#include "cuda/attend/row_tile.cuh"

namespace tilewise::cuda {

struct VisitRange {
    Interval visit;     // some row of the warp sees these
    Interval interior;  // every row of the warp sees these
};

// Fills this warp's part of `intervals` (one entry a row of the block's tile) and returns the warp's ranges; its rows are [warp * kWarpRows, ...).
template <int kWarpRows>
__device__ inline VisitRange find_visit(const AttentionView& view, const IntervalMask& mask, const RowTile& t,
                                        Interval* intervals) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int32_t farthest = t.sequence.seqlen_k;
    VisitRange range = {{farthest, 0}, {0, farthest}};
    const int32_t row = warp * kWarpRows + lane;
    if (lane < kWarpRows) {
        Interval keys;
        if (row < t.num_rows) {
            keys = view.keys_of(mask, t.batch, t.sequence, t.query_of(row));
            range.interior = keys;
            if (!is_empty(keys)) range.visit = keys;
        }
        intervals[row] = keys;
    }
    constexpr uint32_t kAll = 0xffffffffu;
    range.visit = {__reduce_min_sync(kAll, range.visit.begin), __reduce_max_sync(kAll, range.visit.end)};
    range.interior = {__reduce_max_sync(kAll, range.interior.begin), __reduce_min_sync(kAll, range.interior.end)};
    __syncwarp();
    return range;
}

// Keys that some row of the block's tile sees, or a few more. Known from the mask alone, so that the first keys are on their way before
// anything else is looked at, unless the rows bring their own intervals: then every thread looks at some, and the block meets twice.
__device__ inline Interval block_visit(const AttentionView& view, const IntervalMask& mask, const RowTile& t,
                                       Interval* hull) {
    const Interval positional = visit_range(mask, t.query_of(0), t.query_of(t.num_rows - 1) + 1);
    if (!view.visibility.key_begin.given() && !view.visibility.key_end.given()) return positional;
    if (threadIdx.x == 0) *hull = {positional.end, positional.begin};
    __syncthreads();
    for (int32_t row = static_cast<int32_t>(threadIdx.x); row < t.num_rows; row += static_cast<int32_t>(blockDim.x)) {
        const Interval keys = view.keys_of(mask, t.batch, t.sequence, t.query_of(row));
        if (is_empty(keys)) continue;
        atomicMin(&hull->begin, keys.begin);
        atomicMax(&hull->end, keys.end);
    }
    __syncthreads();
    return {hull->begin, max(hull->begin, hull->end)};
}

// Key tiles [first, last) of a block's range, cut into equal parts for splits.
struct KeyTiles {
    int32_t first = 0;
    int32_t last = 0;
};
template <int kTileN> __device__ inline KeyTiles key_tiles_of(Interval keys, int32_t split, int32_t num_splits) {
    if (is_empty(keys)) return {0, 0};
    const int32_t first = keys.begin / kTileN, last = (keys.end + kTileN - 1) / kTileN;
    if (num_splits == 1) return {first, last};
    const int32_t share = (last - first + num_splits - 1) / num_splits;
    const int32_t begin = min(first + split * share, last);
    return {begin, min(begin + share, last)};
}

}  // namespace tilewise::cuda
