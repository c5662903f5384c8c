// Where a row tile of a backward lies.
#pragma once

#include "cuda/attend/row_tile.cuh"
#include "cuda/sm90/bwd_rows_params.hpp"

namespace tilewise::cuda::sm90 {

// A row tile's place: the sequence it is of, and its first row there.
struct RowTilePlace {
    int32_t batch = 0;
    int32_t first_row = 0;
};

__device__ __forceinline__ RowTilePlace place_of_row_tile(const AttentionView& view, int32_t tile_m, int64_t tile) {
    const SequenceTable& table = view.sequences;
    if (table.cu_seqlens_q.given()) {
        const int32_t batch = find_sequence(table.cu_seqlens_q, static_cast<int32_t>(view.sizes.batch), tile_m, tile);
        const int64_t first = tile - first_tile_of(table.cu_seqlens_q, batch, tile_m);
        return {batch, static_cast<int32_t>(first * tile_m)};
    }
    const uint32_t of_sequence = static_cast<uint32_t>(ceil_div(table.seqlen_q, tile_m));
    const uint32_t batch = static_cast<uint32_t>(tile) / of_sequence;
    return {static_cast<int32_t>(batch),
            static_cast<int32_t>((static_cast<uint32_t>(tile) - batch * of_sequence) * tile_m)};
}

}  // namespace tilewise::cuda::sm90
