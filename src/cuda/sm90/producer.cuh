// The producer's three warps. The first loads Q and K, the second V, so that K of a step never waits behind V of the one before; both walk a
// tile's keys from last to first. The third finds the row tiles and says what everybody has to know of them.
#pragma once

#include "cuda/ptx/bulk.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/sm90/gather.cuh"
#include "cuda/sm90/work.cuh"

namespace tilewise::cuda::sm90 {

constexpr uint32_t kWholeWarp = 0xffffffffu;
constexpr int32_t kLongTile = 6;  // key tiles that take longer than it takes to find the next row tile
__device__ __forceinline__ int lane_id() { return static_cast<int>(threadIdx.x) % 32; }

template <int kPanels>
__device__ __forceinline__ void copy_panels(uint32_t to, int panel_bytes, const CUtensorMap& map, ptx::BoxPlace place,
                                            uint32_t barrier, ptx::CacheHint hint) {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel, place.column += kPanelColumns)
        ptx::copy_box(to + panel * panel_bytes, &map, place, barrier, hint);
}

// Key tiles of a warpgroup's rows [first, last) of the tile, by the whole warp.
template <int kTileN>
__device__ inline GroupTiles group_tiles(const AttentionView& view, const WorkItem& item, int32_t first, int32_t last) {
    const RowTile& t = item.tile;
    const int32_t farthest = item.mask.seqlen_k;
    Interval visit = {farthest, 0}, interior = {0, farthest};
    if (view.visibility.key_begin.given() || view.visibility.key_end.given()) {
#pragma unroll 1
        for (int32_t row = first + lane_id(); row < last; row += 32) {
            const Interval keys = keys_of_row(view, item, row);
            interior = {max(interior.begin, keys.begin), min(interior.end, keys.end)};
            if (!is_empty(keys)) visit = {min(visit.begin, keys.begin), max(visit.end, keys.end)};
        }
        visit = {__reduce_min_sync(kWholeWarp, visit.begin), __reduce_max_sync(kWholeWarp, visit.end)};
        interior = {__reduce_max_sync(kWholeWarp, interior.begin), __reduce_min_sync(kWholeWarp, interior.end)};
    } else if (first < last) {
        const int32_t begin = packed_row(t, first).query, end = packed_row(t, last - 1).query + 1;
        visit = visit_range(item.mask, begin, end);
        interior = interior_range(item.mask, begin, end);
    }
    return {{visit.begin / kTileN, (visit.end + kTileN - 1) / kTileN},
            {(interior.begin + kTileN - 1) / kTileN, interior.end / kTileN}};
}

// Keys that some row of the tile sees, or a few more, found by the whole warp.
__device__ inline Interval warp_visit(const AttentionView& view, const IntervalMask& mask, const RowTile& t) {
    const Interval positional = visit_range(mask, packed_row(t, 0).query, packed_row(t, t.num_rows - 1).query + 1);
    if (!view.visibility.key_begin.given() && !view.visibility.key_end.given()) return positional;
    Interval hull = {positional.end, positional.begin};
    for (int32_t row = lane_id(); row < t.num_rows; row += 32) {
        const Interval keys = view.keys_of(mask, t.batch, t.sequence, packed_row(t, row).query);
        if (!is_empty(keys)) hull = {min(hull.begin, keys.begin), max(hull.end, keys.end)};
    }
    hull = {__reduce_min_sync(kWholeWarp, hull.begin), __reduce_max_sync(kWholeWarp, hull.end)};
    return {hull.begin, max(hull.begin, hull.end)};
}

template <class Traits> struct Producer {
    static constexpr ForwardShape kShape = Traits::kShape;
    using B = Barriers<Traits>;
    const BulkForwardParams& params;
    unsigned char* const shared;
    const uint32_t base;

    __device__ __forceinline__ void load_q(const RowTile& t, typename B::QRing& ring) const {
        ring.wait_empty();
        if (lane_id() == 0) {
            ptx::mbarrier_expect_bytes(ring.full_barrier(), Traits::kQBytes);
            const ptx::BoxPlace place = {0, t.first_head,
                                         static_cast<int32_t>(t.sequence.q_row) + packed_row(t, 0).query,
                                         static_cast<int32_t>(t.sequence.q_batch)};
            copy_panels<Traits::kKPanels>(base + ring.stage() * Traits::kQBytes, Traits::kTileM * kLineBytes, params.q,
                                          place, ring.full_barrier(), ptx::CacheHint::kEvictFirst);
        }
        __syncwarp();
        ring.advance();
    }

    __device__ void run_queries_and_keys() const {
        typename B::WorkRing work = {base + B::kWork};
        typename B::QRing q = {base + B::kQ};
        KeyLoader<Traits, Traits::kKPanels> loader = {params, {base + B::kK}, base + Traits::kKOffset, 0};
        while (true) {
            work.wait_full();
            const WorkItem& item = work_item<Traits>(shared, work.stage());
            if (item.is_end) break;
            ptx::mbarrier_arrive_warp(base + B::kTaken + 8 * work.stage());
            load_q(item.tile, q);
            for (int32_t n = item.keys.last - 1; n >= item.keys.first; --n)
                loader.load(params.base.view.k, item.tile, n, 0, params.k);
            loader.flush();
            work.release();
        }
    }

    // Finds row tiles ahead of the loaders, but not far: a tile that is taken early by one block cannot even out the end of a launch. Where the
    // order is fixed there is nothing to even out.
    __device__ void run_schedule() const {
        typename B::WorkRing work = {base + B::kWork};
        if (lane_id() == 0 && params.schedule.ticket != nullptr) prepare_ticket(params.schedule.ticket);
        for (uint32_t index = blockIdx.x; index < params.schedule.total;) {
            work.wait_empty();
            WorkItem& item = work_item<Traits>(shared, work.stage());
            if (find_work(item, index)) {
                const bool is_long = item.keys.last - item.keys.first >= kLongTile;
                ptx::mbarrier_arrive_warp(work.full_barrier());
                if (params.schedule.ticket != nullptr) wait_taken(is_long ? work.count : work.count - 1);
                work.advance();
            }
            uint32_t next = 0;
            if (lane_id() == 0) next = next_work(params.schedule, index);
            index = __shfl_sync(kWholeWarp, next, 0);
        }
        work.wait_empty();
        if (lane_id() == 0) work_item<Traits>(shared, work.stage()).is_end = true;
        ptx::mbarrier_arrive_warp(work.full_barrier());
    }

    // Until the loader of keys has begun with the work item of that number, from 0 on.
    __device__ __forceinline__ void wait_taken(uint32_t number) const {
        const typename B::WorkRing taken = {base + B::kTaken, number};
        if (number != ~0u) taken.wait_full();
    }
    // What consumers need of a tile, by one thread.
    __device__ __forceinline__ void describe_tile(WorkItem& item) const {
        const AttentionView& view = params.base.view;
        const RowTile& t = item.tile;
        const IntervalMask mask = view.mask_of(t.batch, t.sequence);
        item.mask = mask;
        item.is_band = mask.chunk == 0 && mask.block == 0 && mask.prefix == 0 && !view.visibility.key_begin.given() &&
                       !view.visibility.key_end.given();
        item.lse_offset = view.lse.offset(t.sequence.q_batch, t.first_head, t.sequence.q_row + t.first_row);
        item.sink = view.sink_of(t.first_head);
    }
    // False for a tile without rows.
    __device__ __forceinline__ bool find_work(WorkItem& item, uint32_t index) const {
        const ForwardParams& p = params.base;
        if (lane_id() == 0) {
            item.tile = row_tile_at(p.tiles, p.view, place_of_work(p.tiles, params.schedule, index));
            item.is_end = false;
            if (item.tile.num_rows > 0) describe_tile(item);
        }
        __syncwarp();
        const RowTile& t = item.tile;
        const int32_t num_rows = t.num_rows;
        if (num_rows > 0) {
            KeyTiles keys = key_tiles_of<kShape.tile_n>(warp_visit(p.view, item.mask, t), t.split, p.tiles.num_splits);
            if (keys.last <= keys.first) {
                keys = {0, 1};
                __syncwarp();
                if (lane_id() == 0) item.mask.seqlen_k = 0;
                __syncwarp();
            }
            if (lane_id() == 0) item.keys = keys;
#pragma unroll 1
            for (int group = 0; group < kShape.warpgroups; ++group) {
                const int32_t first = group * kGroupRows;
                const GroupTiles tiles =
                    group_tiles<kShape.tile_n>(p.view, item, first, min(first + kGroupRows, num_rows));
                if (lane_id() == 0) item.groups[group] = tiles;
            }
        }
        __syncwarp();
        return num_rows > 0;
    }

    __device__ void run_values() const {
        typename B::WorkRing work = {base + B::kWork};
        KeyLoader<Traits, Traits::kVPanels> loader = {
            params, {base + B::kV}, base + Traits::kVOffset, base + B::kLanding};
        while (true) {
            work.wait_full();
            const WorkItem& item = work_item<Traits>(shared, work.stage());
            if (item.is_end) break;
            for (int32_t n = item.keys.last - 1; n >= item.keys.first; --n)
                loader.load(params.base.view.v, item.tile, n, params.base.dims.first_column_v, params.v);
            loader.flush();
            work.release();
        }
    }
};

}  // namespace tilewise::cuda::sm90
