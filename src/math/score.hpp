// What happens to a score between Q K^T and the softmax, and its derivative.
//
//   s = softmax_scale * (q . k);   s = softcap * tanh(s / softcap);   s += -slope * |i + seqlen_k - seqlen_q - j|;   s += bias
//
// in this order, then the mask (a masked score is replaced by -inf). Source of softcap: Gemma 2 report, section 2; of ALiBi: Press et
// al., "Train Short, Test Long". A kernel holds a ScoreModifier per (batch, head) and never looks inside it.
#pragma once

#include "math/types.hpp"

namespace tilewise {

struct ScoreModifier {
    float softmax_scale = 1.0f;
    float softcap = 0.0f;      // 0: off
    float alibi_slope = 0.0f;  // 0: off
    int32_t alibi_offset = 0;  // seqlen_k - seqlen_q of the sequence, whatever the mask's alignment
};

// True where a score is only scaled, so that a kernel can fold the scale into its exponent.
TILEWISE_HD bool is_plain(const ScoreModifier& m) { return m.softcap == 0.0f && m.alibi_slope == 0.0f; }

template <class Real> TILEWISE_HD Real alibi_term(const ScoreModifier& m, int32_t row, int32_t key) {
    const int32_t distance = row + m.alibi_offset - key;
    return -static_cast<Real>(m.alibi_slope) * static_cast<Real>(distance < 0 ? -distance : distance);
}

#if !defined(__CUDACC_RTC__)
// The score before bias and mask, from the raw product of a query and a key row.
template <class Real> inline Real modified_score(const ScoreModifier& m, Real product, int32_t row, int32_t key) {
    Real s = static_cast<Real>(m.softmax_scale) * product;
    if (m.softcap > 0.0f) s = static_cast<Real>(m.softcap) * std::tanh(s / static_cast<Real>(m.softcap));
    if (m.alibi_slope != 0.0f) s += alibi_term<Real>(m, row, key);
    return s;
}
// d(score) / d(product) from the raw product.
template <class Real> inline Real score_derivative(const ScoreModifier& m, Real product) {
    const Real scale = static_cast<Real>(m.softmax_scale);
    if (m.softcap <= 0.0f) return scale;
    const Real c = std::cosh(scale * product / static_cast<Real>(m.softcap));
    return scale / (c * c);  // 1 - tanh^2 without its cancellation
}
#endif

}  // namespace tilewise
