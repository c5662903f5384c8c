// Where the rows of k (or v) of one sequence and head come from, dense or through a page table, and their copy into shared memory.
// Rows past the sequence's end and columns past the head dimension arrive as zeros, whatever lies in memory there.
#pragma once

#include "cuda/attend/row_tile.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace tilewise::cuda {

struct KvSource {
    const char* rows = nullptr;  // column 0 of key 0 (dense), of slot 0 of page 0 (paged)
    int64_t row_bytes = 0;
    int64_t dim_stride = 1;
    const int32_t* pages = nullptr;  // of this sequence; null: dense
    int64_t page_stride = 0;
    int64_t page_bytes = 0;
    uint32_t page_size = 1;
    uint32_t last_page = 0;
    uint32_t first_key = 0;
    int32_t num_keys = 0;
    int32_t num_columns = 0;
    bool vector = false;  // 16-byte copies

    __device__ __forceinline__ const char* row_of(int32_t key) const {
        if (pages == nullptr) return rows + key * row_bytes;
        const uint32_t row = first_key + static_cast<uint32_t>(key);
        const uint32_t page = row / page_size;
        return rows + page_within(pages[page * page_stride], last_page) * page_bytes +
               (row - page * page_size) * row_bytes;
    }
};

struct KvColumns {
    int32_t first = 0;
    int32_t count = 0;
    bool vector = false;
};

__device__ inline KvSource kv_source_of(const AttentionView& view, const HeadTensor& tensor, const RowTile& t,
                                        KvColumns columns) {
    KvSource source;
    const Sequence& s = t.sequence;
    const bool paged = view.pages.data != nullptr;
    const int64_t origin =
        tensor.offset(paged ? 0 : s.k_batch, paged ? 0 : s.first_key, t.head_kv) + columns.first * tensor.dim_stride;
    source.rows = static_cast<const char*>(tensor.data) + origin * 2;
    source.row_bytes = tensor.row_stride * 2;
    source.dim_stride = tensor.dim_stride;
    if (paged) {
        source.pages = view.pages.data + s.k_batch * view.pages.row_stride;
        source.page_stride = view.pages.page_stride;
        source.page_bytes = tensor.batch_stride * 2;
        source.page_size = static_cast<uint32_t>(view.pages.page_size);
        source.last_page = view.pages.last_page;
        source.first_key = static_cast<uint32_t>(s.first_key);
    }
    source.num_keys = s.seqlen_k;
    source.num_columns = columns.count;
    source.vector = columns.vector;
    return source;
}

// How a block's threads share the 16-byte chunks of a tile.
template <int kThreads, class Tile> struct TileCopy {
    static constexpr int kChunks = Tile::kColumns / 8;
    // Neighbouring threads on a row: 128 (64, 256) contiguous bytes.
    static constexpr int kLanes = kChunks % 8 != 0 ? 4 : Tile::kRows % (kThreads / 8) == 0 ? 8 : 16;
    static constexpr int kRowsOfPass = kThreads / kLanes;
    static constexpr int kPasses = Tile::kRows / kRowsOfPass;
    static_assert(kChunks % kLanes == 0 && Tile::kRows % kRowsOfPass == 0);

    // This thread's place in a tile, and in a dense tensor's rows from `rows` on.
    __device__ static uint32_t place(const Tile& tile) {
        return tile.at(static_cast<int>(threadIdx.x) / kLanes, static_cast<int>(threadIdx.x) % kLanes * 8);
    }
    __device__ static const char* place(const char* rows, int64_t row_bytes) {
        return rows + static_cast<int>(threadIdx.x) / kLanes * row_bytes + static_cast<int>(threadIdx.x) % kLanes * 16;
    }
    // A whole tile whose rows and columns all exist.
    __device__ static void copy(uint32_t to, const char* from, int64_t row_bytes) {
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
            for (int j = 0; j < kChunks / kLanes; ++j)
                ptx::cp_async_16(Tile::moved_rows(Tile::moved(to, j * kLanes), pass * kRowsOfPass),
                                 from + j * kLanes * 16);
            from += kRowsOfPass * row_bytes;
        }
    }
};

// Eight elements one by one, for rows that allow no 16-byte access.
__device__ inline uint4 gather_chunk(const char* row, int64_t dim_stride, int num_columns) {
    uint32_t word[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 8; ++i)
        if (i < num_columns)
            word[i / 2] |= uint32_t{*reinterpret_cast<const uint16_t*>(row + i * dim_stride * 2)} << (16 * (i % 2));
    return {word[0], word[1], word[2], word[3]};
}

// The reverse.
__device__ inline void scatter_chunk(char* row, int64_t dim_stride, int num_columns, uint4 chunk) {
    const uint32_t word[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
    for (int i = 0; i < 8; ++i)
        if (i < num_columns)
            *reinterpret_cast<uint16_t*>(row + i * dim_stride * 2) =
                static_cast<uint16_t>(word[i / 2] >> (16 * (i % 2)));
}

// One 16-byte chunk of row `key`, asynchronously where the source allows it.
__device__ __forceinline__ void copy_chunk(const KvSource& source, uint32_t shared, int32_t key, int chunk) {
    const int left = source.num_columns - chunk * 8;
    const bool exists = key < source.num_keys && left > 0;
    const char* const row = source.row_of(exists ? key : 0);
    if (source.vector)
        ptx::cp_async_16_or_zeros(shared, row + (exists ? chunk * 16 : 0), exists);
    else
        ptx::store_shared_16(
            shared, exists ? gather_chunk(row + chunk * 8 * source.dim_stride * 2, source.dim_stride, left) : uint4{});
}

// Any tile of any source: this thread's share of the rows [first_key, first_key + rows of the tile). The source lies in shared memory, since
// its fields would hold a dozen registers through a kernel's main loop.
template <int kThreads, class Tile>
__device__ inline void load_any_tile(const Tile& tile, const KvSource& source, int32_t first_key) {
    constexpr int kChunks = Tile::kColumns / 8;
    constexpr int kLanes = TileCopy<kThreads, Tile>::kLanes;
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
    for (int row = thread / kLanes; row < Tile::kRows; row += kThreads / kLanes)
#pragma unroll 1
        for (int chunk = thread % kLanes; chunk < kChunks; chunk += kLanes)
            copy_chunk(source, tile.at(row, chunk * 8), first_key + row, chunk);
}

}  // namespace tilewise::cuda
