// Shared memory: addresses, matrix fragments, asynchronous copies into it. sm_80 and up.
#pragma once

#include <cstdint>

namespace tilewise::ptx {

// cvta.shared: a generic pointer -> the 32-bit address that the instructions below take.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// ldmatrix.x4: four 8x8 matrices of 16-bit elements; lanes 8i..8i+7 give the row addresses of matrix i, r[i] is its fragment.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t row_address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row_address)
                 : "memory");
}
// ldmatrix.x4.trans: as above, each matrix transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t row_address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row_address)
                 : "memory");
}

// cp.async.cg 16 bytes past L1.
__device__ __forceinline__ void cp_async_16(uint32_t shared, const void* global) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
// The same with a source size of 0 where not `copied`: nothing is read, zeros arrive.
__device__ __forceinline__ void cp_async_16_or_zeros(uint32_t shared, const void* global, bool copied) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                 "r"(copied ? 16 : 0)
                 : "memory");
}
// cp.async.commit_group: closes the group of this thread's copies so far.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// cp.async.wait_group: until at most kPending of this thread's newest groups are under way.
template <int kPending> __device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// st.shared.v4, ld.shared.v4
__device__ __forceinline__ void store_shared_16(uint32_t shared, uint4 x) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(shared), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}
__device__ __forceinline__ void store_shared_4(uint32_t shared, uint32_t x) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared), "r"(x) : "memory");
}
__device__ __forceinline__ void store_shared_2(uint32_t shared, uint16_t x) {
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(shared), "h"(x) : "memory");
}
__device__ __forceinline__ uint32_t load_shared_4(uint32_t shared) {
    uint32_t x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(shared) : "memory");
    return x;
}
__device__ __forceinline__ uint4 load_shared_16(uint32_t shared) {
    uint4 x;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(shared)
                 : "memory");
    return x;
}

}  // namespace tilewise::ptx
