// Online softmax of a warpgroup's scores, in two halves: what moves is decided before the product P V of the step before has ended, and O follows after
// it. The algebra is that of attend/softmax_tile.cuh.
#pragma once

#include "cuda/attend/softmax_tile.cuh"

namespace tilewise::cuda::sm90 {

template <class Element> struct RowStats {
    float reference[2];  // the raw score that probabilities are relative to; -inf before the first visible key
    float row_sum[2];    // lifted, and of this thread's columns only
    bool is_huge;        // of the warp: references so large that they are subtracted before the scale

    __device__ __forceinline__ void clear() {
        reference[0] = reference[1] = negative_infinity();
        row_sum[0] = row_sum[1] = 0.0f;
        is_huge = false;
    }
};

template <int kCount> __device__ __forceinline__ float largest_of_row(const float (&s)[kCount], int r) {
    float a = fmaxf(s[2 * r], s[2 * r + 1]), b = fmaxf(s[4 + 2 * r], s[5 + 2 * r]);
#pragma unroll
    for (int i = 8; i < kCount; i += 8) {
        a = fmaxf(fmaxf(a, s[i + 2 * r]), s[i + 2 * r + 1]);
        b = fmaxf(fmaxf(b, s[i + 4 + 2 * r]), s[i + 5 + 2 * r]);
    }
    return fmaxf(a, b);
}

// Scores (raw; times `scale` they are base-2 logarithms) -> lifted probabilities, in place. s[4 n + 2 r + e] is column 8 n + 2 (lane % 4) + e of row r.
// slack: kSlack as a raw score. Returns whether some row of the warp moved its reference; `moved` is then the factor of what was summed before.
template <class Element, int kCount>
__device__ __forceinline__ bool softmax_step(RowStats<Element>& rows, float (&s)[kCount], float (&moved)[2],
                                             float scale, float slack) {
    const float top[2] = {largest_of_row(s, 0), largest_of_row(s, 1)};
    moved[0] = moved[1] = 1.0f;
    const bool rare =
        __any_sync(0xffffffffu, !(top[0] <= rows.reference[0] + slack) || !(top[1] <= rows.reference[1] + slack));
    if (rare) {
        bool huge = false;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float row_top = quad_max(top[r]);
            const float growth = (row_top - rows.reference[r]) * scale;  // NaN, no growth, before the first visible key
            if (row_top > rows.reference[r] + slack) {
                moved[r] = ptx::exp2(-growth);
                rows.reference[r] = row_top;
            }
            rows.row_sum[r] *= moved[r];
            huge |= fabsf(rows.reference[r] * scale) > kHuge && rows.reference[r] != negative_infinity();
        }
        rows.is_huge = __any_sync(0xffffffffu, huge);
    }
    float shift[2] = {lifted_shift<Element>(shift_of(rows.reference[0]), scale),
                      lifted_shift<Element>(shift_of(rows.reference[1]), scale)};
    if (rows.is_huge) {  // subtract first: exact where it matters
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float reference = shift_of(rows.reference[r]);
            shift[r] = kLift<Element>;
#pragma unroll
            for (int i = 2 * r; i < kCount; i += 4) {
                s[i] -= reference;
                s[i + 1] -= reference;
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
        for (int i = 2 * r; i < kCount; i += 4) {
            s[i] = ptx::exp2(fmaf(s[i], scale, shift[r]));
            s[i + 1] = ptx::exp2(fmaf(s[i + 1], scale, shift[r]));
            sum0 += s[i];
            sum1 += s[i + 1];
        }
        rows.row_sum[r] += sum0 + sum1;
    }
    return rare;
}

}  // namespace tilewise::cuda::sm90
