// Which rows a block computes: its number -> a sequence, heads, packed rows, a key range. Packed row r of a tile is query
// r / packed_heads of head first_head + r % packed_heads, so one tile of keys serves a whole GQA group where rows are few.
#pragma once

#include "cuda/common/params.hpp"

namespace tilewise::cuda {

struct RowTile {
    Sequence sequence;
    int32_t batch = 0;
    int32_t head_kv = 0;
    int32_t first_head = 0;  // query head of packed row 0
    int32_t packed_heads = 1;
    int32_t first_row = 0;  // of the sequence's packed rows
    int32_t num_rows = 0;   // of this tile; 0 or less: nothing to do
    int32_t split = 0;

    __device__ int32_t query_of(int32_t row) const { return (first_row + row) / packed_heads; }
    __device__ int32_t head_of(int32_t row) const { return first_head + (first_row + row) % packed_heads; }
};

// Sequence `b` of a ragged batch gets the tiles from cu_seqlens[b] / tile + b on: these numbers increase with b and leave each sequence
// at least the tiles it needs, so that a search replaces a table of tiles. A few tiles hold no rows.
__device__ inline int64_t first_tile_of(const IntVector& cu_seqlens, int64_t b, int64_t queries) {
    return cu_seqlens[b] / queries + b;
}
__device__ inline int32_t find_sequence(const IntVector& cu_seqlens, int32_t batch, int64_t queries, int64_t tile) {
    int32_t low = 0, high = batch;  // the last b with first_tile_of(b) <= tile
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (first_tile_of(cu_seqlens, middle, queries) <= tile)
            low = middle;
        else
            high = middle;
    }
    return low;
}

// Tile and head of a block: sections of heads; in a section, the last tile of all its heads first (the longest where rows are causal).
struct TilePlace {
    uint32_t tile = 0;
    uint32_t head = 0;  // over sequences and tile heads
    uint32_t split = 0;
};
__device__ inline TilePlace place_of_block(const TileMap& map, uint32_t block) {
    TilePlace place;
    if (map.num_splits > 1) {
        place.split = block % static_cast<uint32_t>(map.num_splits);
        block /= static_cast<uint32_t>(map.num_splits);
    }
    const uint32_t num_tiles = static_cast<uint32_t>(map.num_tiles);
    const uint32_t heads = static_cast<uint32_t>(map.num_sequences) * static_cast<uint32_t>(map.num_heads);
    const uint32_t wide = static_cast<uint32_t>(map.heads_per_section);
    const uint32_t section = block / (wide * num_tiles);
    const uint32_t rest = block - section * wide * num_tiles;
    const uint32_t width = min(wide, heads - section * wide);
    place.tile = num_tiles - 1 - rest / width;
    place.head = section * wide + rest % width;
    return place;
}

__device__ inline RowTile row_tile_at(const TileMap& map, const AttentionView& view, const TilePlace& place) {
    RowTile t;
    t.split = static_cast<int32_t>(place.split);
    t.packed_heads = map.packed_heads;
    int64_t tile = place.tile;
    const int32_t tile_head = static_cast<int32_t>(place.head % static_cast<uint32_t>(map.num_heads));
    t.batch = static_cast<int32_t>(place.head / static_cast<uint32_t>(map.num_heads));
    if (map.ragged) {
        // Tiles of a ragged batch count queries: a tile then holds tile_m / packed_heads of them.
        const int64_t queries = map.tile_m / map.packed_heads;
        t.batch = find_sequence(view.sequences.cu_seqlens_q, map.batch, queries, tile);
        tile -= first_tile_of(view.sequences.cu_seqlens_q, t.batch, queries);
    }
    t.sequence = resolve_sequence(view.sequences, t.batch);
    t.first_head = tile_head * map.packed_heads;
    t.head_kv = t.first_head / map.gqa_ratio;
    const int64_t rows_of_tile = map.ragged ? map.tile_m / map.packed_heads * map.packed_heads : map.tile_m;
    const int64_t first = tile * rows_of_tile;
    const int64_t rows = int64_t{t.sequence.seqlen_q} * map.packed_heads - first;
    t.first_row = static_cast<int32_t>(first);
    t.num_rows = static_cast<int32_t>(rows < rows_of_tile ? rows : rows_of_tile);
    return t;
}

__device__ inline RowTile row_tile_of(const TileMap& map, const AttentionView& view, uint32_t block) {
    return row_tile_at(map, view, place_of_block(map, block));
}

}  // namespace tilewise::cuda
