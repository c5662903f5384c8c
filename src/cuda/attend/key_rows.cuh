// Rows of k and v for one warp: where a key lies (dense or paged: a run-time switch), and the copy of a tile of keys by the warp alone.
//
// Each lane finds the place of one key; whoever copies a chunk of its row gets the offset by a shuffle. So a page table costs one load and
// one division a key, and they can be made a step before the copy needs them.
#pragma once

#include "cuda/attend/kv_source.cuh"
#include "cuda/ptx/cache_policy.cuh"

namespace tilewise::cuda {

// Page and row in it; dense: page 0.
struct KeyRow {
    int32_t page = 0;
    uint32_t slot = 0;
};

struct KeyRows {
    const int32_t* pages = nullptr;  // of this sequence; null: dense
    uint32_t first_key = 0;          // of a paged sequence
    Interval exist;                  // keys outside of it are not read, nor their pages looked up

    __device__ __forceinline__ KeyRow find(const PageTable& table, int32_t key) const {
        const bool exists = key >= exist.begin && key < exist.end;
        if (pages == nullptr) return {0, static_cast<uint32_t>(exists ? key : 0)};
        KeyRow row;
        if (exists) {
            const uint32_t position = first_key + static_cast<uint32_t>(key),
                           size = static_cast<uint32_t>(table.page_size);
            const uint32_t page = position / size;
            row.slot = position - page * size;
            row.page = static_cast<int32_t>(page_within(pages[page * table.page_stride], table.last_page));
        }
        return row;
    }
};
__device__ inline KeyRows key_rows_of(const AttentionView& view, const Sequence& s, Interval exist) {
    KeyRows rows;
    rows.exist = exist;
    if (view.pages.data == nullptr) return rows;
    rows.pages = view.pages.data + s.k_batch * view.pages.row_stride;
    rows.first_key = static_cast<uint32_t>(s.first_key);
    return rows;
}
// Column `first_column` of key 0 (dense), of slot 0 of page 0 (paged).
__device__ inline const char* first_row_of(const AttentionView& view, const HeadTensor& tensor, const RowTile& t,
                                           int32_t first_column) {
    const bool paged = view.pages.data != nullptr;
    const int64_t origin = tensor.offset(paged ? 0 : t.sequence.k_batch, paged ? 0 : t.sequence.first_key, t.head_kv);
    return static_cast<const char*>(tensor.data) + (origin + first_column * tensor.dim_stride) * 2;
}

// One warp's copy of tiles (16 or 32 rows) of one operand.
template <class Tile> struct WarpTileCopy {
    static constexpr int kChunks = Tile::kColumns / 8;
    static constexpr int kLanes = kChunks % 8 == 0 ? 8 : 4;  // on a row: 128 (64) contiguous bytes
    static constexpr int kRowsOfPass = 32 / kLanes;
    static constexpr int kPasses = Tile::kRows / kRowsOfPass;
    static_assert(kChunks % kLanes == 0 && Tile::kRows <= 32);
    const char* rows = nullptr;  // first_row_of, this lane's chunk
    uint32_t to = 0;             // this lane's place in the first tile

    __device__ static WarpTileCopy of(const char* first_row, int64_t dim_stride, uint32_t tiles) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        return {first_row + lane % kLanes * 8 * dim_stride * 2, Tile{tiles}.at(lane / kLanes, lane % kLanes * 8)};
    }
    __device__ static int64_t offset_of(const HeadTensor& tensor, const KeyRow& row) {
        return (row.page * tensor.batch_stride + row.slot * tensor.row_stride) * 2;
    }
    // A tile whose rows and columns all exist. `row` is that of key number lane (modulo the tile's rows).
    __device__ __forceinline__ void copy_whole(const HeadTensor& tensor, const KeyRow& row, uint32_t tile,
                                               uint64_t policy) const {
        const int64_t offset = offset_of(tensor, row);
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
            const char* const from = rows + __shfl_sync(0xffffffffu, offset, pass * kRowsOfPass + lane / kLanes);
#pragma unroll
            for (int j = 0; j < kChunks / kLanes; ++j)
                ptx::cp_async_16(to + tile + pass * kRowsOfPass * Tile::kPitch + j * kLanes * 16,
                                 from + j * kLanes * 16, policy);
        }
    }
    // Any tile: rows that do not exist and columns past the last are zeros. `exists`: this lane's key does.
    __device__ __forceinline__ void copy_any(const HeadTensor& tensor, const KeyRow& row, bool exists, uint32_t tile,
                                             const KvColumns& columns) const {
        const int64_t offset = offset_of(tensor, row);
        const uint32_t existing = __ballot_sync(0xffffffffu, exists);
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
        for (int pass = 0; pass < kPasses; ++pass) {
            const int row_of_pass = pass * kRowsOfPass + lane / kLanes;
            const char* const from = rows + __shfl_sync(0xffffffffu, offset, row_of_pass);
            uint32_t shared = to + tile + pass * kRowsOfPass * Tile::kPitch;
#pragma unroll 1
            for (int j = 0; j < kChunks / kLanes; ++j, shared += kLanes * 16) {
                const int left = columns.count - (lane % kLanes + j * kLanes) * 8;
                const bool copied = (existing >> row_of_pass & 1) != 0 && left > 0;
                const char* const chunk = copied ? from + j * kLanes * 8 * tensor.dim_stride * 2 : rows;
                if (columns.vector)
                    ptx::cp_async_16_or_zeros(shared, chunk, copied);
                else
                    ptx::store_shared_16(shared, copied ? gather_chunk(chunk, tensor.dim_stride, left) : uint4{});
            }
        }
    }
};

}  // namespace tilewise::cuda
