// mbarrier: a barrier in shared memory whose arrival and waiting are separate, so that warps need not march in step. sm_80 and up.
#pragma once

#include <cstdint>

namespace tilewise::ptx {

// mbarrier.init: `count` arrivals complete a phase. One thread; then a block barrier.
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
// mbarrier.arrive: releases this thread's earlier accesses.
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(barrier) : "memory");
}
// The warp arrives: what its lanes accessed before is released. racecheck does not carry the order that __syncwarp makes to lane 0's arrival
// and reports what follows as a race (docs/kernels/sm80_forward.md), so in a build to be run under it every lane arrives.
#if defined(TILEWISE_RACECHECK)
constexpr uint32_t kArrivalsOfWarp = 32;
#else
constexpr uint32_t kArrivalsOfWarp = 1;
#endif
__device__ __forceinline__ void mbarrier_arrive_warp(uint32_t barrier) {
    __syncwarp();
    if (kArrivalsOfWarp > 1 || threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
}
// cp.async.mbarrier.arrive.noinc: arrives once this thread's earlier cp.async have landed.
__device__ __forceinline__ void mbarrier_arrive_after_copies(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}
// mbarrier.test_wait.parity: until the phase of this parity is complete.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
        "@!done bra again; }" ::"r"(barrier),
        "r"(parity)
        : "memory");
#else
    asm volatile(
        "{ .reg .pred done;\n"
        "again: mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
        "@!done bra again; }" ::"r"(barrier),
        "r"(parity)
        : "memory");
#endif
}
// Whether the phase of this parity is complete.
__device__ __forceinline__ bool mbarrier_test(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done != 0;
}

}  // namespace tilewise::ptx
