// The rows of a warp's tile (at most 32) in q, o and the like. Each lane finds the place of one row; whoever moves a chunk of it gets the place
// by a shuffle, so that packed heads and ragged batches cost one division a row and not one a chunk.
#pragma once

#include "cuda/attend/kv_source.cuh"
#include "cuda/attend/row_tile.cuh"

namespace tilewise::cuda {

// A row as the lane with its number sees it.
struct LaneRow {
    int32_t query = 0;
    int32_t head = 0;
    bool exists = false;
};
// Row `first` + lane of the tile; a warp of 16 rows leaves half of its lanes without one.
template <int kRows> __device__ inline LaneRow lane_row_of(const RowTile& t, int32_t first) {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
    LaneRow row;
    row.exists = lane < kRows && first + lane < t.num_rows;
    if (t.packed_heads == 1) {
        row.query = t.first_row + first + lane;
        row.head = t.first_head;
    } else {
        row.query = t.query_of(first + lane);
        row.head = t.head_of(first + lane);
    }
    return row;
}
// Byte offset of the lane's row in a 16-bit tensor; negative: no such row.
__device__ inline int64_t row_bytes_of(const HeadTensor& tensor, const RowTile& t, const LaneRow& row) {
    return row.exists ? tensor.offset(t.sequence.q_batch, t.sequence.q_row + row.query, row.head) * 2 : int64_t{-1};
}

// How a warp's lanes share the 16-byte chunks of its rows.
template <class Tile> struct RowCopy {
    static constexpr int kChunks = Tile::kColumns / 8;
    static constexpr int kLanes = kChunks % 8 == 0 ? 8 : 4;
    static constexpr int kRowsOfPass = 32 / kLanes;
    static constexpr int kPasses = Tile::kRows / kRowsOfPass;
    static_assert(Tile::kRows <= 32);
};

// This warp's rows into shared memory; rows that do not exist and columns past `num_columns` are zeros.
template <class Tile>
__device__ inline void load_rows(const Tile& tile, const HeadTensor& tensor, int64_t row_bytes, int num_columns,
                                 bool vector) {
    using Copy = RowCopy<Tile>;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const char* const data = static_cast<const char*>(tensor.data);
    const int column = lane % Copy::kLanes * 8;
    if (vector) {
        const uint32_t to = tile.at(lane / Copy::kLanes, column);
#pragma unroll
        for (int pass = 0; pass < Copy::kPasses; ++pass) {
            const int64_t offset = __shfl_sync(0xffffffffu, row_bytes, pass * Copy::kRowsOfPass + lane / Copy::kLanes);
#pragma unroll
            for (int j = 0; j < Copy::kChunks / Copy::kLanes; ++j) {
                const bool exists = offset >= 0 && column + j * Copy::kLanes * 8 < num_columns;
                ptx::cp_async_16_or_zeros(Tile::moved_rows(Tile::moved(to, j * Copy::kLanes), pass * Copy::kRowsOfPass),
                                          data + (exists ? offset + (column + j * Copy::kLanes * 8) * 2 : 0), exists);
            }
        }
        return;
    }
#pragma unroll 1
    for (int pass = 0; pass < Copy::kPasses; ++pass) {
        const int row = pass * Copy::kRowsOfPass + lane / Copy::kLanes;
        const int64_t offset = __shfl_sync(0xffffffffu, row_bytes, row);
#pragma unroll 1
        for (int c = column; c < Tile::kColumns; c += Copy::kLanes * 8) {
            const bool exists = offset >= 0 && c < num_columns;
            const char* const from = data + offset + c * tensor.dim_stride * 2;
            ptx::store_shared_16(tile.at(row, c),
                                 exists ? gather_chunk(from, tensor.dim_stride, num_columns - c) : uint4{});
        }
    }
}

// The reverse: the columns [0, num_columns) of this warp's rows from shared memory to memory.
template <class Tile>
__device__ inline void store_rows(const Tile& tile, const HeadTensor& tensor, int64_t row_bytes, int num_columns,
                                  bool vector) {
    using Copy = RowCopy<Tile>;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    char* const data = static_cast<char*>(tensor.data);
    const int column = lane % Copy::kLanes * 8;
    if (vector) {
        const uint32_t from = tile.at(lane / Copy::kLanes, column);
#pragma unroll
        for (int pass = 0; pass < Copy::kPasses; ++pass) {
            const int64_t offset = __shfl_sync(0xffffffffu, row_bytes, pass * Copy::kRowsOfPass + lane / Copy::kLanes);
#pragma unroll
            for (int j = 0; j < Copy::kChunks / Copy::kLanes; ++j)
                if (offset >= 0 && column + j * Copy::kLanes * 8 < num_columns)
                    *reinterpret_cast<uint4*>(data + offset + (column + j * Copy::kLanes * 8) * 2) =
                        ptx::load_shared_16(
                            Tile::moved_rows(Tile::moved(from, j * Copy::kLanes), pass * Copy::kRowsOfPass));
        }
        return;
    }
#pragma unroll 1
    for (int pass = 0; pass < Copy::kPasses; ++pass) {
        const int row = pass * Copy::kRowsOfPass + lane / Copy::kLanes;
        const int64_t offset = __shfl_sync(0xffffffffu, row_bytes, row);
#pragma unroll 1
        for (int c = column; c < Tile::kColumns; c += Copy::kLanes * 8)
            if (offset >= 0 && c < num_columns)
                scatter_chunk(data + offset + c * tensor.dim_stride * 2, tensor.dim_stride, num_columns - c,
                              ptx::load_shared_16(tile.at(row, c)));
    }
}

}  // namespace tilewise::cuda
