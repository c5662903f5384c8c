// Scores outside of a row's interval become -inf: one bit an element, so that a masked tile costs a test and a select an element.
#pragma once

#include "cuda/attend/score_tile.cuh"

namespace tilewise::cuda::sm90 {

// Bits [begin, end) of a word, both clamped to 0..32.
__device__ __forceinline__ uint32_t bit_interval(int begin, int end) {
    const uint32_t below_end = end <= 0 ? 0u : (end >= 32 ? ~0u : (1u << end) - 1u);
    const uint32_t below_begin = begin <= 0 ? 0u : (begin >= 32 ? ~0u : (1u << begin) - 1u);
    return below_end & ~below_begin;
}
// How many of a thread's elements of a row (columns 8 j + {0, 1} from its first on) lie below column `column`.
__device__ __forceinline__ int elements_below(int column) {
    return column <= 0 ? 0 : column / 8 * 2 + min(column % 8, 2);
}

// s[4 j + 2 r + e] is column 8 j + 2 (lane % 4) + e of row r. keys_of: what a row of the block's tile sees.
template <int kCount, class KeysOf>
__device__ __forceinline__ void mask_outside(float (&s)[kCount], TileOrigin origin, KeysOf&& keys_of) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int32_t first_column = origin.key + lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const Interval keys = keys_of(origin.row + lane / 4 + 8 * r);
        const int begin = elements_below(keys.begin - first_column);
        const int end = is_empty(keys) ? 0 : elements_below(keys.end - first_column);
#pragma unroll
        for (int word = 0; word < kCount / 2; word += 32) {
            const uint32_t visible = bit_interval(begin - word, end - word);
#pragma unroll
            for (int i = 0; i < 32 && word + i < kCount / 2; ++i) {
                float& x = s[(word + i) / 2 * 4 + 2 * r + i % 2];
                x = (visible >> i & 1u) != 0 ? x : negative_infinity();
            }
        }
    }
}

}  // namespace tilewise::cuda::sm90
