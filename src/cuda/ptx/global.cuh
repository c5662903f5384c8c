// Global memory: sums into it, turns between blocks, small copies out of it. sm_80 and up.
#pragma once

#include <cstdint>

namespace tilewise::ptx {

// red.add.f32: *to += x, nobody waits for it.
__device__ __forceinline__ void reduce_add(float* to, float x) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
// red.add.v2.f32 where the architecture has it: to[0] += x, to[1] += y; 8-byte aligned.
__device__ __forceinline__ void reduce_add_2(float* to, float x, float y) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x), "f"(y) : "memory");
#else
    reduce_add(to, x);
    reduce_add(to + 1, y);
#endif
}

// ld.acquire: what the thread that released this value wrote before is seen after.
__device__ __forceinline__ int32_t load_acquire(const int32_t* from) {
    int32_t x;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
    return x;
}
// red.release.add: *to += x, after everything that this thread wrote or saw.
__device__ __forceinline__ void add_release(int32_t* to, int32_t x) {
    asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}

// cp.async.ca 4 bytes into shared memory; a source size of 0 where not `copied`: nothing is read, zeros arrive.
__device__ __forceinline__ void cp_async_4_or_zeros(uint32_t shared, const void* global, bool copied) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global), "r"(copied ? 4 : 0)
                 : "memory");
}

}  // namespace tilewise::ptx
