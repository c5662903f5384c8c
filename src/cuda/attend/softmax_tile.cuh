// Online softmax of the rows that a thread holds in m16n8 accumulators: rows 2 m and 2 m + 1 of block m, shared with the three other
// lanes of its quad.
//
// The reference that is subtracted before exp2 moves only when a row's maximum passed it by more than 2^kSlack; until then
// probabilities may exceed 1 by that factor, which the division by the row sum removes. Whether a row moves depends on that row alone,
// so its bits do not depend on its neighbours.
//
// P is rounded to the element before P V. f16 has no numbers between 0 and 6e-8 and few digits below 6e-5, and with dropout the keys that are
// kept may all be down there: probabilities of f16 kernels are therefore computed 2^kLift times as large, up to 2^15 of its 65504.
#pragma once

#include "cuda/common/params.hpp"
#include "cuda/ptx/math.cuh"
#include "math/online_softmax.hpp"
#include "math/types.hpp"

namespace tilewise::cuda {

// Base-2 logarithm of what probabilities and all sums of them are multiplied by; it costs nothing, being part of what is subtracted anyway.
template <class Element> constexpr float kLift = 0.0f;
template <> constexpr float kLift<F16> = 7.0f;
template <class Element> constexpr float kUnlift = 1.0f;  // 2^-kLift
template <> constexpr float kUnlift<F16> = 0.0078125f;

// From here on, the rounding of a product in `score * scale - reference * scale` is no longer small beside 1.
constexpr float kHuge = 1048576.0f;

// What is added to scaled scores before exp2, and the reference as a base-2 logarithm that follows from it. Rounded here: left to the compiler,
// the product would join a later subtraction unrounded, and two uses of one reference would differ by far more than 1 where scores are huge.
template <class Element> __device__ __forceinline__ float lifted_shift(float reference, float scale) {
    return fmaf(-reference, scale, kLift<Element>);
}
template <class Element> __device__ __forceinline__ float scaled_reference(float reference, float scale) {
    return __fsub_rn(kLift<Element>, lifted_shift<Element>(reference, scale));
}

template <class Element, int kMBlocks> struct SoftmaxRows {
    float
        reference[2 * kMBlocks];  // the raw score that probabilities are relative to; -inf before the first visible key
    float row_sum[2 * kMBlocks];  // lifted, and of this thread's columns only, until finish

    __device__ void clear() {
#pragma unroll
        for (int r = 0; r < 2 * kMBlocks; ++r) {
            reference[r] = negative_infinity();
            row_sum[r] = 0.0f;
        }
    }
};

__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Scores s (raw; times `scale` they are base-2 logarithms, scale > 0) -> lifted probabilities relative to the reference, in place; o
// follows a moved reference.
template <class Element, int kMBlocks, int kNBlocks, int kVBlocks>
__device__ __forceinline__ void softmax_step(SoftmaxRows<Element, kMBlocks>& rows, float (&s)[kMBlocks][kNBlocks][4],
                                             float (&o)[kMBlocks][kVBlocks][4], float scale) {
    float moved[2 * kMBlocks];  // factor of what was summed so far
    float shift[2 * kMBlocks];
    bool rare = false;
#pragma unroll
    for (int r = 0; r < 2 * kMBlocks; ++r) {
        float top = s[r / 2][0][r % 2 * 2];
#pragma unroll
        for (int n = 0; n < kNBlocks; ++n) top = fmaxf(top, fmaxf(s[r / 2][n][r % 2 * 2], s[r / 2][n][r % 2 * 2 + 1]));
        top = quad_max(top);
        const float growth =
            (top - rows.reference[r]) * scale;  // infinite at the first visible key, NaN (no growth) before it
        moved[r] = growth > kSlack ? ptx::exp2(-growth) : 1.0f;
        rows.reference[r] = growth > kSlack ? top : rows.reference[r];
        shift[r] = lifted_shift<Element>(shift_of(rows.reference[r]), scale);
        rare |= growth > kSlack || fabsf(shift[r]) > kHuge;
    }
    if (__any_sync(0xffffffffu, rare)) {
#pragma unroll
        for (int r = 0; r < 2 * kMBlocks; ++r) {
            rows.row_sum[r] *= moved[r];
#pragma unroll
            for (int v = 0; v < kVBlocks; ++v) {
                o[r / 2][v][r % 2 * 2] *= moved[r];
                o[r / 2][v][r % 2 * 2 + 1] *= moved[r];
            }
            if (fabsf(shift[r]) > kHuge) {  // subtract first: exact where it matters
                shift[r] = kLift<Element>;
#pragma unroll
                for (int n = 0; n < kNBlocks; ++n) {
                    s[r / 2][n][r % 2 * 2] -= rows.reference[r];
                    s[r / 2][n][r % 2 * 2 + 1] -= rows.reference[r];
                }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < 2 * kMBlocks; ++r) {
        float sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
        for (int n = 0; n < kNBlocks; ++n) {
            float& x0 = s[r / 2][n][r % 2 * 2];
            float& x1 = s[r / 2][n][r % 2 * 2 + 1];
            x0 = ptx::exp2(fmaf(x0, scale, shift[r]));
            x1 = ptx::exp2(fmaf(x1, scale, shift[r]));
            sum0 += x0;
            sum1 += x1;
        }
        rows.row_sum[r] += sum0 + sum1;
    }
}

// A row's end: its lse (natural logarithm) and the factor that turns its output sums into the output.
struct FinishedRow {
    float lse = 0.0f;
    float factor = 0.0f;
};
// `sink` is a natural-log score without a value, or -inf; row_sum is not lifted; keep_scale is what output sums lack beside its
// inverse: 1 / (1 - dropout_p), and kUnlift where they are lifted.
__device__ __forceinline__ FinishedRow finish_row(float reference, float row_sum, float sink, float keep_scale) {
    const float sink_log2 = sink * kLog2E;
    // Relative to the larger of the two, so that a dominating sink does not overflow.
    const float top = shift_of(fmaxf(reference, sink_log2));
    const float moved = ptx::exp2(reference - top);
    const float sum = row_sum * moved + (sink_log2 == negative_infinity() ? 0.0f : ptx::exp2(sink_log2 - top));
    FinishedRow row;
    row.lse = sum == 0.0f ? negative_infinity() : (top + ptx::log2(sum)) * kLn2;
    row.factor = moved * inverse_sum(sum) * keep_scale;
    return row;
}

}  // namespace tilewise::cuda
