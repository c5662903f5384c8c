// The vector vocabulary on AVX2 with FMA and F16C: 8 floats in a register, tails by masked loads or through a small
// buffer. See scalar.hpp for the rules that the headers of this folder share.
#pragma once

#include <immintrin.h>

#include "math/types.hpp"

namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET {

using Float = __m256;
using Mask = __m256i;  // all bits of a lane, or none
constexpr int kWidth = 8;
// Rows of the product kernel's register tile: 6 x 2 vectors leave 4 of 16 registers for operands.
constexpr int kRowTile = 6;

inline Float zero() { return _mm256_setzero_ps(); }
inline Float broadcast(float x) { return _mm256_set1_ps(x); }
inline Float iota() { return _mm256_set_ps(7, 6, 5, 4, 3, 2, 1, 0); }
inline Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
// b where either is NaN.
inline Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
inline Float min(Float a, Float b) { return _mm256_min_ps(a, b); }
inline Float abs(Float x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
inline float reduce_add(Float x) {
    const __m128 quad = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 pair = _mm_add_ps(quad, _mm_movehl_ps(quad, quad));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
inline float reduce_max(Float x) {
    const __m128 quad = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 pair = _mm_max_ps(quad, _mm_movehl_ps(quad, quad));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

// Lanes begin .. end - 1; 0 <= begin, end <= kWidth.
inline Mask lanes(int begin, int end) {
    const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    const __m256i before = _mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane);
    return _mm256_andnot_si256(before, _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
}
inline Mask nonzero_bytes(const uint8_t* p) {
    const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    return _mm256_cmpgt_epi32(bytes, _mm256_setzero_si256());
}
inline Mask less(Float a, Float b) { return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
inline Float select(Mask mask, Float a, Float b) { return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(mask)); }
inline Float keep(Mask mask, Float x) { return _mm256_and_ps(_mm256_castsi256_ps(mask), x); }
// magnitude >= 0 with the sign of `sign`.
inline Float with_sign(Float magnitude, Float sign) {
    return _mm256_or_ps(magnitude, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}

// The low 9 bits of a float's representation as sign and exponent of another, whose fraction is 0.
inline Float power_of_low_bits(Float x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 23)); }

namespace detail {
inline Float widen_bf16(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline __m128i bits_of_bf16(Float x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}
inline __m128i bits_of_f16(Float x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline __m128i first_halves(const void* p, int count) {
    uint16_t buffer[8] = {};
    __builtin_memcpy(buffer, p, static_cast<size_t>(count) * sizeof(uint16_t));
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(buffer));
}
inline void store_first_halves(void* p, __m128i bits, int count) {
    uint16_t buffer[8];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(buffer), bits);
    __builtin_memcpy(p, buffer, static_cast<size_t>(count) * sizeof(uint16_t));
}
}  // namespace detail

inline Float load(const float* p) { return _mm256_loadu_ps(p); }
inline Float load(const BF16* p) { return detail::widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline Float load(const F16* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
// The first `count` elements, 0 in the other lanes; nothing past them is read.
inline Float load_first(const float* p, int count) { return _mm256_maskload_ps(p, lanes(0, count)); }
inline Float load_first(const BF16* p, int count) { return detail::widen_bf16(detail::first_halves(p, count)); }
inline Float load_first(const F16* p, int count) { return _mm256_cvtph_ps(detail::first_halves(p, count)); }

// Stores round once, to nearest even.
inline void store(float* p, Float x) { _mm256_storeu_ps(p, x); }
inline void store(BF16* p, Float x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), detail::bits_of_bf16(x)); }
inline void store(F16* p, Float x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), detail::bits_of_f16(x)); }
inline void store_first(float* p, Float x, int count) { _mm256_maskstore_ps(p, lanes(0, count), x); }
inline void store_first(BF16* p, Float x, int count) { detail::store_first_halves(p, detail::bits_of_bf16(x), count); }
inline void store_first(F16* p, Float x, int count) { detail::store_first_halves(p, detail::bits_of_f16(x), count); }

// The values of x after a round trip through T, for x that is not NaN (a NaN gives anything).
template <class T> inline Float rounded_to(Float x);
template <> inline Float rounded_to<float>(Float x) { return x; }
template <> inline Float rounded_to<BF16>(Float x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    return _mm256_castsi256_ps(_mm256_and_si256(rounded, _mm256_set1_epi32(-0x10000)));
}
template <> inline Float rounded_to<F16>(Float x) { return _mm256_cvtph_ps(detail::bits_of_f16(x)); }

// rows[r] lane c becomes rows[c] lane r.
inline void transpose(Float (&rows)[kWidth]) {
    __m256 quads[8];  // 4 x 4 blocks transposed in each half
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        const __m256 lo01 = _mm256_unpacklo_ps(rows[i], rows[i + 1]), hi01 = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
        const __m256 lo23 = _mm256_unpacklo_ps(rows[i + 2], rows[i + 3]);
        const __m256 hi23 = _mm256_unpackhi_ps(rows[i + 2], rows[i + 3]);
        quads[i] = _mm256_shuffle_ps(lo01, lo23, 0x44);
        quads[i + 1] = _mm256_shuffle_ps(lo01, lo23, 0xee);
        quads[i + 2] = _mm256_shuffle_ps(hi01, hi23, 0x44);
        quads[i + 3] = _mm256_shuffle_ps(hi01, hi23, 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        rows[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
        rows[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
    }
}

}  // namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET
