// Tiles in shared memory as wgmma and the copy engine see them, and rings of stages. A tile of 16-bit elements is panels of 64 columns; a
// panel's rows are lines of 128 bytes, in which the 16-byte chunk c of row r lies at place c ^ r % 8.
#pragma once

#include <cstdint>

#include "cuda/ptx/mbarrier.cuh"
#include "cuda/sm90/traits.hpp"

namespace tilewise::cuda::sm90 {

// Descriptor of an operand at a multiple of 1024 bytes. leading_bytes: from one panel to the next, where the operand's rows are lines (V).
__device__ __forceinline__ uint64_t operand(uint32_t address, int leading_bytes = 16) {
    constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
    constexpr uint64_t kEightLines = uint64_t{1024 / 16} << 32;
    return uint64_t{(address & 0x3ffff) / 16} | static_cast<uint64_t>(leading_bytes / 16) << 16 | kEightLines |
           kSwizzle128;
}
// What is added to a descriptor for 16 columns further, of a tile with `rows` rows; for 16 rows further.
constexpr int columns_step(int step, int rows) { return (step / 4 * rows * kLineBytes + step % 4 * 32) / 16; }
constexpr int rows_step(int step) { return step * 16 * kLineBytes / 16; }

__device__ __forceinline__ uint32_t line_chunk(int row, int chunk) {
    return row * kLineBytes + ((chunk ^ (row & 7)) * 16);
}

// A place in a ring of kStages buffers with a full and an empty barrier each: whoever fills waits for empty, whoever reads for full. One number
// says stage and phase, since registers are scarce.
template <int kStages> struct Ring {
    uint32_t full = 0;  // address of full[kStages], empty[kStages]
    uint32_t count = 0;

    __device__ __forceinline__ uint32_t stage() const { return count % kStages; }
    __device__ __forceinline__ uint32_t phase() const { return count / kStages % 2; }
    __device__ __forceinline__ uint32_t full_barrier() const { return full + 8 * stage(); }
    __device__ __forceinline__ uint32_t empty_barrier() const { return full + 8 * (kStages + stage()); }
    __device__ __forceinline__ void wait_full() const { ptx::mbarrier_wait(full_barrier(), phase()); }
    // Of a fresh ring the phase before the first is complete.
    __device__ __forceinline__ void wait_empty() const { ptx::mbarrier_wait(empty_barrier(), phase() ^ 1u); }
    __device__ __forceinline__ void advance() { ++count; }
    // All lanes of the warp are done with the stage.
    __device__ __forceinline__ void release() {
        ptx::mbarrier_arrive_warp(empty_barrier());
        advance();
    }
    __device__ static void init(uint32_t barriers, uint32_t fills, uint32_t reads) {
        for (int i = 0; i < kStages; ++i) {
            ptx::mbarrier_init(barriers + 8 * i, fills);
            ptx::mbarrier_init(barriers + 8 * (kStages + i), reads);
        }
    }
};

// The barriers of a block.
template <class Traits> struct Barriers {
    static constexpr int kQ = Traits::kBarrierOffset;
    static constexpr int kK = kQ + 16 * Traits::kShape.q_stages;
    static constexpr int kV = kK + 16 * Traits::kShape.kv_stages;
    static constexpr int kWork = kV + 16 * Traits::kShape.kv_stages;
    static constexpr int kTaken = kWork + 16 * kWorkStages;  // the loader of keys has begun with a work item
    static constexpr int kLanding =
        kTaken + 8 * kWorkStages;  // copies that are not handed on before something else was done
    using QRing = Ring<Traits::kShape.q_stages>;
    using KvRing = Ring<Traits::kShape.kv_stages>;
    using WorkRing = Ring<kWorkStages>;

    __device__ static void init(uint32_t shared) {
        constexpr uint32_t kReads = Traits::kConsumerWarps * ptx::kArrivalsOfWarp;
        QRing::init(shared + kQ, 1, kReads);
        KvRing::init(shared + kK, ptx::kArrivalsOfWarp, kReads);
        KvRing::init(shared + kV, ptx::kArrivalsOfWarp, kReads);
        WorkRing::init(shared + kWork, ptx::kArrivalsOfWarp, kReads + 2 * ptx::kArrivalsOfWarp);
        for (int i = 0; i < kWorkStages; ++i) ptx::mbarrier_init(shared + kTaken + 8 * i, ptx::kArrivalsOfWarp);
        ptx::mbarrier_init(shared + kLanding, 1);
    }
};

}  // namespace tilewise::cuda::sm90
