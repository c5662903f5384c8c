// The softmax of a row that arrives in pieces: an algebra of (maximum, sum) with an identity and an associative merge, so
// that tiles, splits and ranks of a ring are all the same operation. Source: Milakov and Gimelshein, "Online normalizer
// calculation for softmax"; the merge of outputs by log-sum-exp is that of Flash-Decoding.
//
// The identity is (-inf, 0): a row that has seen no key. There is no finite sentinel, so that any finite logits are right;
// `shift` is what makes exp(-inf - (-inf)) harmless.
#pragma once

#include "math/types.hpp"

namespace tilewise {

// Exponentials of GPUs are of base 2.
constexpr float kLog2E = 1.44269504f;
constexpr float kLn2 = 0.693147181f;

template <class Real> struct SoftmaxState {
    Real row_max = -Real(__builtin_huge_val());
    Real row_sum = 0;  // sum of exp(score - row_max)
};

// What to subtract before exp: the maximum, or 0 while the row has seen no key (every score is then -inf, exp gives 0).
template <class Real> TILEWISE_HD Real shift_of(Real row_max) {
    return row_max == -Real(__builtin_huge_val()) ? Real(0) : row_max;
}

#if !defined(__CUDACC_RTC__)
template <class Real> inline SoftmaxState<Real> merge(SoftmaxState<Real> a, SoftmaxState<Real> b) {
    SoftmaxState<Real> r;
    // A NaN maximum must survive: fmax would drop it.
    r.row_max = a.row_max < b.row_max || b.row_max != b.row_max ? b.row_max : a.row_max;
    const Real shift = shift_of(r.row_max);
    r.row_sum = a.row_sum * std::exp(a.row_max - shift) + b.row_sum * std::exp(b.row_max - shift);
    return r;
}
// A sink is one more score with no value: it enters the sum and leaves the output's numerator alone.
template <class Real> inline SoftmaxState<Real> with_sink(SoftmaxState<Real> state, Real sink) {
    return merge(state, SoftmaxState<Real>{sink, Real(1)});
}
// Natural logarithm of sum exp(score); -inf for a row that has seen no key.
template <class Real> inline Real lse_of(SoftmaxState<Real> state) {
    if (state.row_sum == Real(0)) return -Real(__builtin_huge_val());
    return state.row_max + std::log(state.row_sum);
}
// lse of two disjoint key sets from their own.
template <class Real> inline Real merge_lse(Real a, Real b) {
    return lse_of(merge(SoftmaxState<Real>{a, a == -Real(__builtin_huge_val()) ? Real(0) : Real(1)},
                        SoftmaxState<Real>{b, b == -Real(__builtin_huge_val()) ? Real(0) : Real(1)}));
}
// The factor of a partial output in the merged one; 0 for an empty part, whose output may be anything.
template <class Real> inline Real merge_weight(Real part_lse, Real merged_lse) {
    if (part_lse == -Real(__builtin_huge_val())) return Real(0);
    return std::exp(part_lse - merged_lse);
}
#endif
// 1 / row_sum, and 0 where the row has seen no key, so that its output is 0.
template <class Real> TILEWISE_HD Real inverse_sum(Real row_sum) {
    return row_sum == Real(0) ? Real(0) : Real(1) / row_sum;
}

}  // namespace tilewise
