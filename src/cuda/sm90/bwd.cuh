// Backward attention for compute capability 9.0 with wgmma and the bulk copy engine: q, k, v, dO, lse, delta -> dK, dV of 128 keys, and what
// they add to the sums of dQ. With P = exp(s - lse), D dropout's factor, c the derivative of softcap:
//
//   dS = c P (D dO.v - delta);   dV = sum D P dO;   dK = sum dS q;   dQ += dS k
//
// A block has 128 keys of a kv head and walks over the rows of all query heads of its group, so dK and dV are complete in registers, and their
// bits never depend on which block comes first. bwd_prologue.cu hands over delta, lse and zeroed sums of dQ; bwd_epilogue.cu rounds dQ.
//
// Roles. Warpgroup 0 produces: warp 0 loads, warp 1 adds dQ to global memory. Warpgroups 1 and 2 consume, 64 keys each.
// mbarriers. full[stage] of Q and dO <- an arrival, and the bytes of boxes and statistics; empty <- an arrival a consumer warp. dQ: full <- an
//   arrival a warp that stages, empty <- the adder. K, V: once.
// Named barriers. 1: dS is complete, all consumers. 2 + warpgroup: around the staging of dK and dV.
// Shared memory and registers: bwd_traits.hpp. Measurements: docs/kernels/sm90_backward.md.
#pragma once

#include "cuda/sm90/bwd_consumer.cuh"
#include "cuda/sm90/bwd_producer.cuh"

namespace tilewise::cuda::sm90 {

template <class Traits> __device__ __forceinline__ void backward(const BulkBackwardParams& params) {
    extern __shared__ __align__(1024) unsigned char shared[];
    KeyBlock& block = *reinterpret_cast<KeyBlock*>(shared + Traits::kBlockOffset);
    const uint32_t base = ptx::shared_address(shared);
    if (!enter_key_block<Traits>(params, shared, block, [=] { BackwardBarriers<Traits>::init(base); })) return;
    const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
    if (warpgroup == 0) {
        ptx::lower_registers<Traits::kProducerRegisters>();
        const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
        BackwardProducer<Traits> producer = {params, block, base, {base + Traits::kLanding}};
        if (warp == 0) producer.run_loads();
        if (warp == 1 && threadIdx.x % 32 == 0) producer.run_sums();
    } else {
        ptx::raise_registers<Traits::kConsumerRegisters>();
        BackwardConsumer<Traits> consumer = {
            {base}, params, block, {warpgroup - 1, static_cast<int>(threadIdx.x) % 128}};
        consumer.run();
    }
}

}  // namespace tilewise::cuda::sm90
