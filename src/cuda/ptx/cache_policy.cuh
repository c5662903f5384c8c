// How long data that a kernel reads should stay in the second-level cache, and copies that say so. sm_80 and up.
#pragma once

#include <cstdint>

namespace tilewise::ptx {

// createpolicy.fractional: all accesses that carry it are the first to be evicted; for data that is read once.
__device__ __forceinline__ uint64_t policy_evict_first() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
// The ordinary order.
__device__ __forceinline__ uint64_t policy_evict_normal() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// cp.async.cg 16 bytes past L1, under a policy.
__device__ __forceinline__ void cp_async_16(uint32_t shared, const void* global, uint64_t policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                 "l"(policy)
                 : "memory");
}
// The same with a source size of 0 where not `copied`: nothing is read, zeros arrive.
__device__ __forceinline__ void cp_async_16_or_zeros(uint32_t shared, const void* global, bool copied,
                                                     uint64_t policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(shared), "l"(global),
                 "r"(copied ? 16 : 0), "l"(policy)
                 : "memory");
}

}  // namespace tilewise::ptx
