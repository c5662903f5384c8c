// Pairs: two 16-bit elements of a register as floats, two floats of shared memory. sm_80 and up.
#pragma once

#include <cstdint>

namespace tilewise::ptx {

// The reverse of pack_bf16: two shifts' worth of bits.
__device__ __forceinline__ float2 unpack_bf16(uint32_t x) {
    return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
}
// cvt.f32.f16 of both halves.
__device__ __forceinline__ float2 unpack_f16(uint32_t x) {
    float2 y;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
        : "=f"(y.x), "=f"(y.y)
        : "r"(x));
    return y;
}
// ld.shared.v2.f32
__device__ __forceinline__ float2 load_shared_floats(uint32_t shared) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(shared) : "memory");
    return x;
}
// ld.shared.v2.b32
__device__ __forceinline__ uint2 load_shared_8(uint32_t shared) {
    uint2 x;
    asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(shared) : "memory");
    return x;
}

}  // namespace tilewise::ptx
