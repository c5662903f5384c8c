// What a warpgroup (128 threads) does as one: order of its matrix products, registers, named barriers. sm_90a.
// The products themselves are in ptx/wgmma.cuh, which cmake/TilewiseWgmma.cmake writes.
#pragma once

#include <cstdint>

namespace tilewise::ptx {

// wgmma.fence: before the first product of a batch, and after any other write to its registers.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// wgmma.commit_group: closes the group of the products so far.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// wgmma.wait_group: until at most kPending of the newest groups are under way.
template <int kPending> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// No instruction: uses of these registers stay on their side of this point.
template <int kCount> __device__ __forceinline__ void pin(float (&r)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(r[i])::"memory");
}

template <int kCount> __device__ __forceinline__ void pin(uint32_t (&r)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(r[i])::"memory");
}
// %tid.x, read anew at each use instead of kept in a register.
__device__ __forceinline__ uint32_t thread_index() {
    uint32_t x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}

// setmaxnreg: all warps of the warpgroup. An increase waits until the block's pool, which is what it was launched with, has the registers.
template <int kRegisters> __device__ __forceinline__ void raise_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters> __device__ __forceinline__ void lower_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// barrier.sync, barrier.arrive: named barriers 1 to 15; `threads` of both kinds complete one.
__device__ __forceinline__ void barrier_sync(int id, int threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void barrier_arrive(int id, int threads) {
    asm volatile("barrier.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace tilewise::ptx
