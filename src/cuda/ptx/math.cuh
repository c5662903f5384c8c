// Arithmetic instructions that C++ has no name for. sm_80 and up.
#pragma once

#include <cstdint>

namespace tilewise::ptx {

// ex2.approx.ftz: 2^x, relative error 2^-22; 0 for -inf.
__device__ __forceinline__ float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// lg2.approx.ftz: log2(x); -inf for 0.
__device__ __forceinline__ float log2(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// cvt.rn.bf16x2.f32: two floats rounded to nearest even, `low` in the low half.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
    uint32_t x;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}
// cvt.rn.f16x2.f32: two floats rounded to nearest even, `low` in the low half.
__device__ __forceinline__ uint32_t pack_f16(float low, float high) {
    uint32_t x;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}

}  // namespace tilewise::ptx
