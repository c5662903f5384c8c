// Elements of any type as floats, one by one or 16 bytes at a time.
#pragma once

#include "cuda/ptx/math.cuh"
#include "math/types.hpp"

namespace tilewise::cuda {

__device__ __forceinline__ float load_real(const void* data, DType dtype, int64_t offset) {
    if (dtype == DType::kF32) return static_cast<const float*>(data)[offset];
    const uint16_t bits = static_cast<const uint16_t*>(data)[offset];
    return dtype == DType::kBF16 ? to_float(BF16{bits}) : to_float(F16{bits});
}
__device__ __forceinline__ void store_real(void* data, DType dtype, int64_t offset, float value) {
    switch (dtype) {
    case DType::kF32: static_cast<float*>(data)[offset] = value; break;
    case DType::kF16: static_cast<F16*>(data)[offset] = to_f16(value); break;
    default: static_cast<BF16*>(data)[offset] = to_bf16(value); break;
    }
}

// Elements of one access: 16 bytes, or one element where a tensor's base or strides allow no more.
template <class T, bool kVector> constexpr int kElementsOfAccess = kVector ? 16 / static_cast<int>(sizeof(T)) : 1;

template <class T, int kCount> __device__ __forceinline__ void load_floats(const T* from, float (&to)[kCount]) {
    if constexpr (kCount == 1) {
        to[0] = Element<T>::load(*from);
    } else {
        alignas(16) T elements[kCount];
#pragma unroll
        for (int i = 0; i < kCount * static_cast<int>(sizeof(T)) / 16; ++i)
            reinterpret_cast<uint4*>(elements)[i] = reinterpret_cast<const uint4*>(from)[i];
#pragma unroll
        for (int i = 0; i < kCount; ++i) to[i] = Element<T>::load(elements[i]);
    }
}

__device__ __forceinline__ uint32_t pack_pair(BF16, float low, float high) { return ptx::pack_bf16(low, high); }
__device__ __forceinline__ uint32_t pack_pair(F16, float low, float high) { return ptx::pack_f16(low, high); }

// kCount * sizeof(T) is the size of one element, or 8 or 16 bytes that are aligned so.
template <class T, int kCount> __device__ __forceinline__ void store_floats(T* to, const float (&from)[kCount]) {
    if constexpr (kCount == 1) {
        *to = Element<T>::store(from[0]);
    } else if constexpr (sizeof(T) == 4) {
        static_assert(kCount % 4 == 0);
#pragma unroll
        for (int i = 0; i < kCount / 4; ++i)
            reinterpret_cast<float4*>(to)[i] = {from[4 * i], from[4 * i + 1], from[4 * i + 2], from[4 * i + 3]};
    } else {
        uint32_t words[kCount / 2];
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i) words[i] = pack_pair(T{}, from[2 * i], from[2 * i + 1]);
        if constexpr (kCount == 4)
            *reinterpret_cast<uint2*>(to) = {words[0], words[1]};
        else
            *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
    }
}

// Sum over the `lanes` (a power of two) neighbouring lanes of a warp that share a row; every lane gets it, in one fixed order.
__device__ __forceinline__ float sum_of_lanes(float x, int lanes) {
    for (int distance = lanes / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

}  // namespace tilewise::cuda
