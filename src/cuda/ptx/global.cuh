// Global memory: sums into it, turns between blocks, small copies out of it. sm_80 and up.
#pragma once

#include <cstdint>

namespace tilewise::ptx {

// red.add.f32: *to += x, nobody waits for it.
__device__ __forceinline__ void reduce_add(float* to, float x) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
}
// red.add.v4.f32: four sums side by side, 16-byte aligned. Only where the architecture has it.
#if __CUDA_ARCH__ >= 900
constexpr bool kHasReduceAdd4 = true;
__device__ __forceinline__ void reduce_add_4(float* to, float4 x) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.x), "f"(x.y), "f"(x.z),
                 "f"(x.w)
                 : "memory");
}
#else
constexpr bool kHasReduceAdd4 = false;
__device__ __forceinline__ void reduce_add_4(float*, float4) {}
#endif

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
