// Which row tile a block computes next, and what its warps must know of it: written by the scheduling warp, one tile ahead.
#pragma once

#include "cuda/attend/visit.cuh"
#include "cuda/ptx/atomic.cuh"
#include "cuda/sm90/fwd_params.hpp"
#include "cuda/sm90/tile.cuh"

namespace tilewise::cuda::sm90 {

// Of a warpgroup's rows, in key tiles: those that some row sees, and those that every row sees.
struct GroupTiles {
    KeyTiles visit, interior;
};

struct WorkItem {
    RowTile tile;
    IntervalMask mask;  // of no keys for a key range of no tiles
    KeyTiles keys;      // of the block; never empty: where no row sees a key, one masked tile makes the rows' results
    GroupTiles groups[3];
    // Of a tile of one head: where the lse of its row 0 goes, and the head's sink.
    int64_t lse_offset = 0;
    float sink = 0.0f;
    bool is_band = false;  // the mask is a band along the diagonal, and rows bring no intervals of their own
    bool is_end = false;
};
static_assert(sizeof(WorkItem) <= kWorkBytes);

// Query and head of a packed row, without a division where heads are not packed.
struct PackedRow {
    int32_t query = 0;
    int32_t head = 0;
};
__device__ __forceinline__ PackedRow packed_row(const RowTile& t, int32_t row) {
    if (t.packed_heads == 1) return {t.first_row + row, t.first_head};
    return {t.query_of(row), t.head_of(row)};
}

template <class Traits> __device__ __forceinline__ WorkItem& work_item(unsigned char* shared, uint32_t stage) {
    return *reinterpret_cast<WorkItem*>(shared + Traits::kWorkOffset + stage * kWorkBytes);
}
// Keys that a row of the item's tile sees, or a begin below 0; none where there is no such row.
__device__ __forceinline__ Interval keys_of_row(const AttentionView& view, const WorkItem& item, int32_t row) {
    if (row >= item.tile.num_rows) return {};
    if (item.is_band) {
        const int32_t position = packed_row(item.tile, row).query + item.mask.offset;
        return {position - item.mask.left, min(position + item.mask.right + 1, item.mask.seqlen_k)};
    }
    return view.keys_of(item.mask, item.tile.batch, item.tile.sequence, packed_row(item.tile, row).query);
}

__device__ inline TilePlace place_of_work(const TileMap& map, const Schedule& schedule, uint32_t index) {
    TilePlace place;
    if (map.num_splits > 1) {
        place.split = index % static_cast<uint32_t>(map.num_splits);
        index /= static_cast<uint32_t>(map.num_splits);
    }
    const uint32_t num_tiles = static_cast<uint32_t>(map.num_tiles);
    const uint32_t heads = static_cast<uint32_t>(map.num_sequences) * static_cast<uint32_t>(map.num_heads);
    const uint32_t final_begin = heads - schedule.final_heads;
    uint32_t first = final_begin, width = schedule.final_heads;
    if (index < final_begin * num_tiles) {
        first = index / (schedule.section_heads * num_tiles) * schedule.section_heads;
        width = min(schedule.section_heads, final_begin - first);
    }
    const uint32_t rest = index - first * num_tiles, rank = rest / width;
    place.tile = schedule.longest_first ? num_tiles - 1 - rank : rank;
    place.head = first + rest - rank * width;
    return place;
}

// The next index after `index`. With a ticket: a word in the workspace with a tag in its low half and a count in its high half. Memory without the
// tag is a count of 0, and who takes the last ticket leaves 0 behind: nothing has to be cleared before a launch, or before a graph's replay. The
// tag lies first in memory, so that whoever used the memory for something else meanwhile destroyed it. Read as a float it is a NaN
// that no arithmetic makes.
constexpr uint64_t kTicketTag = 0x7fedc0dfu;
constexpr uint64_t kTicketTagMask = 0xffffffffu;
constexpr int kTicketShift = 32;
__device__ __forceinline__ void prepare_ticket(uint64_t* ticket) {
    const uint64_t found = ptx::load_relaxed(ticket);
    if ((found & kTicketTagMask) != kTicketTag) ptx::compare_and_swap(ticket, found, kTicketTag);
}
// One thread. Each tile that is worked on draws one ticket, so that `total` are drawn in all.
__device__ __forceinline__ uint32_t next_work(const Schedule& schedule, uint32_t index) {
    if (schedule.ticket == nullptr) return index + gridDim.x;
    const uint32_t drawn =
        static_cast<uint32_t>(ptx::add_relaxed(schedule.ticket, uint64_t{1} << kTicketShift) >> kTicketShift);
    if (drawn == schedule.total - 1) ptx::store_relaxed(schedule.ticket, kTicketTag);
    return drawn + gridDim.x;
}

}  // namespace tilewise::cuda::sm90
