// Clusters of blocks: who is in mine, and stores into another block's shared memory. They exist from sm_90 on; below, a block is alone.
#pragma once

#include <cstdint>

namespace tilewise::ptx {

#if __CUDA_ARCH__ >= 900
constexpr bool kHasClusters = true;
#else
constexpr bool kHasClusters = false;
#endif

// %cluster_ctaid.x: this block's number in its cluster.
__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(rank));
#endif
    return rank;
}
// barrier.cluster.arrive.relaxed: says that this thread got here; orders nothing but what fence_barrier_init names.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
// barrier.cluster.wait.acquire: until all threads of the cluster arrived.
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// fence.mbarrier_init: initialised barriers are seen by the cluster after its next barrier.
__device__ __forceinline__ void fence_barrier_init() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
// mbarrier.arrive.expect_tx: one arrival, and the phase waits for so many bytes of stores from outside.
__device__ __forceinline__ void mbarrier_expect_bytes(uint32_t barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(barrier), "r"(bytes)
                 : "memory");
#endif
}
// mapa: the address in the shared memory of block `rank` that corresponds to `shared` of this one.
__device__ __forceinline__ uint32_t address_in_block(uint32_t shared, uint32_t rank) {
    uint32_t address = shared;
#if __CUDA_ARCH__ >= 900
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
#endif
    return address;
}
// st.async: into another block's shared memory; the bytes are counted there by `barrier`, a barrier of that block.
__device__ __forceinline__ void store_remote_16(uint32_t address, float4 x, uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(address),
        "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier)
        : "memory");
#endif
}
__device__ __forceinline__ void store_remote_8(uint32_t address, float2 x, uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1,%2}, [%3];" ::"r"(address),
                 "f"(x.x), "f"(x.y), "r"(barrier)
                 : "memory");
#endif
}

}  // namespace tilewise::ptx
