// Vectors of the AVX2 kernels: eight floats. GCC 12 widens bytes one by one from portable code, hence two intrinsics.
// Each lanes_SET.hpp gives kernels.cpp the same names; functions are static so that no other source can end up with them.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace tilewise::generate::avx2 {

constexpr std::int64_t kLanes = 8;
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));
typedef std::int32_t IntVector __attribute__((vector_size(kLanes * sizeof(std::int32_t))));

static inline IntVector widen_unsigned(const std::byte* at) {
    return reinterpret_cast<IntVector>(_mm256_cvtepu8_epi32(_mm_loadu_si64(at)));
}

static inline IntVector widen_signed(const std::byte* at) {
    return reinterpret_cast<IntVector>(_mm256_cvtepi8_epi32(_mm_loadu_si64(at)));
}

}  // namespace tilewise::generate::avx2
