// The two 16-bit element types, as tile code sees them: a product, and a pair rounded into one register.
#pragma once

#include "cuda/ptx/math.cuh"
#include "cuda/ptx/mma.cuh"
#include "math/types.hpp"

namespace tilewise::tile {

template <class Element> struct Products;
template <> struct Products<BF16> {
    __device__ static void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        ptx::mma_m16n8k16_bf16(d, a, b0, b1);
    }
    __device__ static uint32_t pack(float low, float high) { return ptx::pack_bf16(low, high); }
};
template <> struct Products<F16> {
    __device__ static void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        ptx::mma_m16n8k16_f16(d, a, b0, b1);
    }
    __device__ static uint32_t pack(float low, float high) { return ptx::pack_f16(low, high); }
};

}  // namespace tilewise::tile
