// Forward attention for compute capability 9.0 with wgmma and the bulk copy engine: q, k, v -> o, lse (or f32 partial results of one key range).
//
// Roles. Warpgroup 0 produces: warp 0 loads Q and K, warp 1 loads V, warp 2 draws row tiles and resolves them. The other warpgroups consume 64
//   packed query rows each. Blocks are persistent, one a multiprocessor.
// mbarriers. full[stage] <- an arrival, and the bytes of its boxes; empty[stage] <- an arrival a consumer warp (Q, K, V). Work: full and rows <-
//   one arrival each, empty <- the consumer warps and the two loaders.
// Named barriers. 1 + warpgroup: around the staging of O (128 threads). 5 + warpgroup: turns (256 threads).
// Shared memory and registers: traits.hpp. Measurements: docs/kernels/sm90_forward.md.
#pragma once

#include "cuda/sm90/consumer.cuh"
#include "cuda/sm90/producer.cuh"

namespace tilewise::cuda::sm90 {

template <class Traits> __device__ __forceinline__ void forward(const BulkForwardParams& params) {
    extern __shared__ __align__(1024) unsigned char shared[];
    using B = Barriers<Traits>;
    const uint32_t base = ptx::shared_address(shared);
    if (threadIdx.x == 0) {
        B::init(base);
        ptx::fence_barrier_init();
        ptx::prefetch_tensor_map(&params.q);
        ptx::prefetch_tensor_map(&params.k);
        ptx::prefetch_tensor_map(&params.v);
    }
    __syncthreads();
    const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
    if (warpgroup == 0) {
        ptx::lower_registers<Traits::kProducerRegisters>();
        const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
        const Producer<Traits> producer = {params, shared, base};
        if (warp == 0) producer.run_queries_and_keys();
        if (warp == 1) producer.run_values();
        if (warp == 2) producer.run_schedule();
    } else {
        ptx::raise_registers<Traits::kConsumerRegisters>();
        const ConsumerRings<Traits> rings = {{base + B::kQ}, {base + B::kK}, {base + B::kV}, {base + B::kWork}};
        Consumer<Traits> consumer = {params, shared, base, {warpgroup - 1, static_cast<int>(threadIdx.x) % 128}, rings};
        consumer.run();
    }
}

}  // namespace tilewise::cuda::sm90
