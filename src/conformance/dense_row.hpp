// The softmax of one row of a DenseHead: scores of the keys that it sees, probabilities, lse, the sink's share. Private to dense*.cpp.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "conformance/dense.hpp"

namespace tilewise::conformance {

template <class Real> struct PairState {
    int64_t key = 0;
    Real p = 0;               // before dropout
    Real cap_derivative = 1;  // of the score by the scaled product
};

template <class Real> struct RowState {
    std::vector<PairState<Real>> pairs;  // the keys that the row sees
    Real lse = 0;
    Real sink_p = 0;
    bool is_empty = true;  // sees nothing: its output is 0 and it gives no gradient
};

inline double keep_factor(const DenseHead& head, int64_t row, int64_t key) {
    if (head.keep.empty()) return 1;
    return head.keep[static_cast<size_t>(row * head.sizes.keys + key)] != 0 ? head.score.keep_scale : 0;
}

// `product_of(key)` is q . k.
template <class Real, class Product>
RowState<Real> softmax_row(const DenseHead& head, int64_t row, Product&& product_of) {
    const auto scale = static_cast<Real>(head.score.scale), cap = static_cast<Real>(head.score.softcap);
    const auto sink = static_cast<Real>(head.score.sink);
    const Real infinity = std::numeric_limits<Real>::infinity();
    RowState<Real> state;
    Real maximum = sink;
    for (int64_t key = 0; key < head.sizes.keys; ++key) {
        const auto pair = static_cast<size_t>(row * head.sizes.keys + key);
        if (head.visible[pair] == 0) continue;
        Real score = scale * product_of(key), derivative = 1;
        if (cap > 0) {
            const Real x = score / cap, c = std::cosh(x);
            score = cap * std::tanh(x);
            derivative = 1 / (c * c);
        }
        if (!head.additive.empty()) score += static_cast<Real>(head.additive[pair]);
        state.pairs.push_back({key, score, derivative});
        if (!(score <= maximum) && !std::isnan(maximum)) maximum = score;
    }
    state.is_empty = maximum == -infinity;
    if (state.is_empty) return state;
    state.sink_p = std::exp(sink - maximum);
    Real sum = state.sink_p;
    for (PairState<Real>& pair : state.pairs) {
        pair.p = std::exp(pair.p - maximum);
        sum += pair.p;
    }
    for (PairState<Real>& pair : state.pairs) pair.p /= sum;
    state.sink_p /= sum;
    state.lse = maximum + std::log(sum);
    return state;
}

}  // namespace tilewise::conformance
