// Vectors of the AVX-512 kernels: sixteen floats. As in lanes_avx2.hpp, widening bytes takes an intrinsic;
// the masked form, because GCC 12 warns of an undefined value inside the other.
// Each lanes_SET.hpp gives kernels.cpp the same names; functions are static so that no other source can end up with them.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace tilewise::generate::avx512 {

constexpr std::int64_t kLanes = 16;
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));
typedef std::int32_t IntVector __attribute__((vector_size(kLanes * sizeof(std::int32_t))));

constexpr unsigned short kAll = 0xffff;

static inline IntVector widen_unsigned(const std::byte* at) {
    return reinterpret_cast<IntVector>(
        _mm512_maskz_cvtepu8_epi32(kAll, _mm_loadu_si128(reinterpret_cast<const __m128i*>(at))));
}

static inline IntVector widen_signed(const std::byte* at) {
    return reinterpret_cast<IntVector>(
        _mm512_maskz_cvtepi8_epi32(kAll, _mm_loadu_si128(reinterpret_cast<const __m128i*>(at))));
}

}  // namespace tilewise::generate::avx512
