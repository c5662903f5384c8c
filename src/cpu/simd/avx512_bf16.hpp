// The AVX-512 vocabulary plus products of bf16 pairs: one instruction adds a[2k] b[2k] + a[2k+1] b[2k+1] to each fp32
// lane. The instruction reads subnormal bf16 numbers as 0 and rounds its two sums to nearest even. How fast it is
// differs: on the Xeon that this was measured on (Sapphire Rapids class) half the rate of fp32 FMA counted in products,
// on Zen 4 and 5 twice; so the cost model, not the instruction set's name, has to choose between this set and avx512.
#pragma once

#include "cpu/simd/avx512.hpp"

#define TILEWISE_SIMD_HAS_PAIRS 1

namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET {

using Pairs = __m512bh;  // 16 lanes of two bf16 each

inline Pairs load_pairs(const BF16* p) { return reinterpret_cast<Pairs>(_mm512_loadu_si512(p)); }
inline Pairs broadcast_pair(const BF16* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return reinterpret_cast<Pairs>(_mm512_set1_epi32(pair));
}
// Lane i: the pair of two bf16 that came as the floats first[i], second[i].
inline Float interleave(Float first, Float second) {
    const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(first), 16);
    return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_castps_si512(second)));
}
inline Float dot_pairs(Float sum, Pairs a, Pairs b) { return _mm512_dpbf16_ps(sum, a, b); }

}  // namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET
