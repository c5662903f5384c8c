// The vector vocabulary on AVX-512 (F, BW, DQ, VL): 16 floats in a register, tails by mask registers.
//
// See scalar.hpp for the rules that the headers of this folder share.
#pragma once

#include <immintrin.h>

#include "math/types.hpp"

namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET {

using Float = __m512;
using Mask = __mmask16;
constexpr int kWidth = 16;
// Rows of the product kernel's register tile: 12 x 2 vectors leave 8 of 32 registers for operands.
constexpr int kRowTile = 12;

inline Float zero() { return _mm512_setzero_ps(); }
inline Float broadcast(float x) { return _mm512_set1_ps(x); }
inline Float iota() { return _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0); }
inline Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
// b where either is NaN.
inline Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
inline Float min(Float a, Float b) { return _mm512_min_ps(a, b); }
inline Float abs(Float x) { return _mm512_abs_ps(x); }
inline float reduce_add(Float x) { return _mm512_reduce_add_ps(x); }
inline float reduce_max(Float x) { return _mm512_reduce_max_ps(x); }

// Lanes begin .. end - 1; 0 <= begin, end <= kWidth.
inline Mask lanes(int begin, int end) { return static_cast<Mask>((0xffffu << begin) & ((1u << end) - 1u)); }
inline Mask nonzero_bytes(const uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm_test_epi8_mask(bytes, bytes);
}
inline Mask less(Float a, Float b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline Float select(Mask mask, Float a, Float b) { return _mm512_mask_blend_ps(mask, b, a); }
inline Float keep(Mask mask, Float x) { return _mm512_maskz_mov_ps(mask, x); }
// magnitude >= 0 with the sign of `sign`.
inline Float with_sign(Float magnitude, Float sign) {
    return _mm512_or_ps(magnitude, _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
}

// The low 9 bits of a float's representation as sign and exponent of another, whose fraction is 0.
inline Float power_of_low_bits(Float x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 23)); }

inline Float load(const float* p) { return _mm512_loadu_ps(p); }
inline Float load(const BF16* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline Float load(const F16* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
// The first `count` elements, 0 in the other lanes; nothing past them is read.
inline Float load_first(const float* p, int count) { return _mm512_maskz_loadu_ps(lanes(0, count), p); }
inline Float load_first(const BF16* p, int count) {
    const __m256i bits = _mm256_maskz_loadu_epi16(lanes(0, count), p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline Float load_first(const F16* p, int count) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes(0, count), p));
}

namespace detail {
inline __m256i bits_of_bf16(Float x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16));
}
inline __m256i bits_of_f16(Float x) { return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
}  // namespace detail

// Stores round once, to nearest even.
inline void store(float* p, Float x) { _mm512_storeu_ps(p, x); }
inline void store(BF16* p, Float x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), detail::bits_of_bf16(x)); }
inline void store(F16* p, Float x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), detail::bits_of_f16(x)); }
inline void store_first(float* p, Float x, int count) { _mm512_mask_storeu_ps(p, lanes(0, count), x); }
inline void store_first(BF16* p, Float x, int count) {
    _mm256_mask_storeu_epi16(p, lanes(0, count), detail::bits_of_bf16(x));
}
inline void store_first(F16* p, Float x, int count) {
    _mm256_mask_storeu_epi16(p, lanes(0, count), detail::bits_of_f16(x));
}

// The values of x after a round trip through T, for x that is not NaN (a NaN gives anything).
template <class T> inline Float rounded_to(Float x);
template <> inline Float rounded_to<float>(Float x) { return x; }
template <> inline Float rounded_to<BF16>(Float x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    return _mm512_castsi512_ps(_mm512_and_si512(rounded, _mm512_set1_epi32(-0x10000)));
}
template <> inline Float rounded_to<F16>(Float x) { return _mm512_cvtph_ps(detail::bits_of_f16(x)); }

// rows[r] lane c becomes rows[c] lane r.
inline void transpose(Float (&rows)[kWidth]) {
    __m512 a[16], b[16];
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {  // 2 x 2 blocks, then 4 x 4, in each 128-bit quarter
        const __m512 lo01 = _mm512_unpacklo_ps(rows[i], rows[i + 1]), hi01 = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
        const __m512 lo23 = _mm512_unpacklo_ps(rows[i + 2], rows[i + 3]);
        const __m512 hi23 = _mm512_unpackhi_ps(rows[i + 2], rows[i + 3]);
        a[i] = _mm512_shuffle_ps(lo01, lo23, 0x44);
        a[i + 1] = _mm512_shuffle_ps(lo01, lo23, 0xee);
        a[i + 2] = _mm512_shuffle_ps(hi01, hi23, 0x44);
        a[i + 3] = _mm512_shuffle_ps(hi01, hi23, 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // quarters of rows i, i + 4, i + 8, i + 12
        b[i] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
        b[i + 4] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd);
        b[i + 8] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
        b[i + 12] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        rows[i] = _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88);
        rows[i + 8] = _mm512_shuffle_f32x4(b[i], b[i + 8], 0xdd);
        rows[i + 4] = _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0x88);
        rows[i + 12] = _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0xdd);
    }
}

}  // namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET
