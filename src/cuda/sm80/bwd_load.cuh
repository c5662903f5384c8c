// Tiles of query rows on their way into shared memory: Q with lse, dO with delta. A ring of stages, each with a barrier that says that the
// copies have landed (one arrival a thread that copies) and one that says that all warps have read it (one arrival a warp).
#pragma once

#include "cuda/ptx/global.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/opaque.cuh"
#include "cuda/sm80/bwd_block.cuh"

namespace tilewise::cuda::sm80 {

// A place in a ring, from how many slots were used before it.
template <int kSlots> struct RingPlace {
    static_assert(kSlots == 1 || kSlots == 2);
    int slot = 0;
    uint32_t phase = 0;
    __device__ __forceinline__ explicit RingPlace(int index)
        : slot(index & (kSlots - 1)), phase(static_cast<uint32_t>(index >> (kSlots - 1)) & 1u) {}
};

// Barriers of a ring at `address`: full[kSlots], empty[kSlots].
template <int kSlots> struct RingBarriers {
    uint32_t address = 0;

    __device__ void init(uint32_t full_count, uint32_t empty_count) const {
        for (int i = 0; i < kSlots; ++i) {
            ptx::mbarrier_init(address + i * 8, full_count);
            ptx::mbarrier_init(address + (kSlots + i) * 8, empty_count);
        }
    }
    __device__ __forceinline__ uint32_t full(int slot) const { return address + slot * 8; }
    __device__ __forceinline__ void wait_full(RingPlace<kSlots> at) const {
        ptx::mbarrier_wait(full(at.slot), at.phase);
    }
    // Of a fresh barrier, the phase before the first is complete.
    __device__ __forceinline__ void wait_empty(RingPlace<kSlots> at) const {
        ptx::mbarrier_wait(address + (kSlots + at.slot) * 8, at.phase ^ 1u);
    }
    // All lanes of the warp have written, or read, the slot.
    __device__ __forceinline__ void arrive_full(RingPlace<kSlots> at) const {
        ptx::mbarrier_arrive_warp(full(at.slot));
    }
    __device__ __forceinline__ void arrive_empty(RingPlace<kSlots> at) const {
        ptx::mbarrier_arrive_warp(address + (kSlots + at.slot) * 8);
    }
};

// Copies of one step's rows into a stage, by the threads of one role: as little as possible is held in registers between two fills.
template <class Traits, class Tile> struct RowFill {
    static constexpr int kTileM = Traits::kShape.tile_m, kThreads = Traits::kRoleThreads;
    static constexpr int kChunks = Tile::kColumns / 8;
    static constexpr int kLanes = kChunks % 8 == 0 ? 8 : 4;
    static constexpr int kRowsOfPass = kThreads / kLanes;
    static_assert(kTileM % kRowsOfPass == 0);

    // `thread` counts in the role.
    const KvSource& source;  // of query head 0, in shared memory
    const HeadTensor& tensor;
    uint32_t stage = 0;  // address
    int thread = 0;

    // All rows and columns exist.
    __device__ __forceinline__ void whole(BackwardStep step) const {
        const int64_t row_bytes = tensor.row_stride * 2;
        const char* from = source.rows + (step.row + thread / kLanes) * row_bytes +
                           step.head * (tensor.head_stride * 2) + thread % kLanes * 16;
        const uint32_t to = Tile{stage}.at(thread / kLanes, thread % kLanes * 8);
#pragma unroll
        for (int pass = 0; pass < kTileM / kRowsOfPass; ++pass) {
#pragma unroll
            for (int j = 0; j < kChunks / kLanes; ++j)
                ptx::cp_async_16(Tile::moved_rows(Tile::moved(to, j * kLanes), pass * kRowsOfPass),
                                 from + j * kLanes * 16);
            from += kRowsOfPass * row_bytes;
        }
    }
    __device__ void any(BackwardStep step) const {
#pragma unroll 1
        for (int i = thread; i < kTileM * kChunks; i += kThreads) {
            const int row = i / kChunks, chunk = i % kChunks, left = source.num_columns - chunk * 8;
            const bool exists = step.row + row < source.num_keys && left > 0;
            const char* from = source.rows;
            if (exists)
                from += (step.row + row) * source.row_bytes + step.head * (tensor.head_stride * 2) +
                        chunk * 8 * source.dim_stride * 2;
            const uint32_t to = Tile{stage}.at(row, chunk * 8);
            if (source.vector)
                ptx::cp_async_16_or_zeros(to, from, exists);
            else
                ptx::store_shared_16(to, exists ? gather_chunk(from, source.dim_stride, left) : uint4{});
        }
    }
};

// One f32 value a row (lse or delta of the sequence, head 0 first) into a stage; zeros for rows that do not exist.
template <class Traits>
__device__ __forceinline__ void fill_values(const float* values, int64_t head_rows, BackwardStep step, int32_t num_rows,
                                            uint32_t stage, int thread) {
    if (thread >= Traits::kShape.tile_m) return;
    const bool exists = step.row + thread < num_rows;
    const int64_t offset = exists ? step.head * head_rows + step.row + thread : 0;
    ptx::cp_async_4_or_zeros(stage + thread * 4, values + offset, exists);
}

}  // namespace tilewise::cuda::sm80
