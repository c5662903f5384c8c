// Exact and naive attention of one head: one template, in double without rounding and in float with it. See dense.hpp.
#include "conformance/dense.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/dense_row.hpp"
#include "conformance/element.hpp"

namespace tilewise::conformance {

namespace {

template <class Real> struct Operands { std::vector<Real> q, k, v, grad_o; };

template <class Real> std::vector<Real> converted(const std::vector<double>& values) {
    return {values.begin(), values.end()};
}

template <class Real> Real dot(const Real* a, const Real* b, int64_t count) {
    Real sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
}
template <class Real> void add_scaled(Real* sums, Real factor, const Real* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) sums[i] += factor * values[i];
}

// The computation in `Real`, with P, dS and the outputs rounded to `element` (kF64: not at all).
template <class Real> class Attention {
public:
    Attention(const DenseHead& head, DType element)
        : head_(head),
          element_(element),
          x_{converted<Real>(head.q), converted<Real>(head.k), converted<Real>(head.v), converted<Real>(head.grad_o)} {}

    DenseResult run() {
        const DenseSizes& n = head_.sizes;
        result_.o.assign(static_cast<size_t>(n.rows * n.dv), 0);
        result_.lse.assign(static_cast<size_t>(n.rows), -std::numeric_limits<double>::infinity());
        if (head_.is_backward) {
            result_.grad_q.assign(static_cast<size_t>(n.rows * n.d), 0);
            result_.grad_s.assign(static_cast<size_t>(n.rows * n.keys), 0);
            grad_k_.assign(static_cast<size_t>(n.keys * n.d), 0);
            grad_v_.assign(static_cast<size_t>(n.keys * n.dv), 0);
        }
        for (int64_t row = 0; row < n.rows; ++row) run_row(row);
        result_.grad_k.assign(grad_k_.begin(), grad_k_.end());
        result_.grad_v.assign(grad_v_.begin(), grad_v_.end());
        return std::move(result_);
    }

private:
    Real round(Real x) const { return static_cast<Real>(rounded(element_, static_cast<double>(x))); }

    void run_row(int64_t row) {
        const DenseSizes& n = head_.sizes;
        const auto score = [&](int64_t key) { return dot(x_.q.data() + row * n.d, x_.k.data() + key * n.d, n.d); };
        const RowState<Real> state = softmax_row<Real>(head_, row, score);
        if (state.is_empty) return;
        std::vector<Real> o(static_cast<size_t>(n.dv), 0);
        for (const PairState<Real>& pair : state.pairs)
            add_scaled(o.data(), round(pair.p * kept(row, pair.key)), x_.v.data() + pair.key * n.dv, n.dv);
        for (Real& value : o) value = round(value);
        std::copy(o.begin(), o.end(), result_.o.begin() + row * n.dv);
        result_.lse[static_cast<size_t>(row)] = static_cast<double>(state.lse);
        if (head_.is_backward) run_row_backward(row, state, o);
    }

    void run_row_backward(int64_t row, const RowState<Real>& state, const std::vector<Real>& o) {
        const DenseSizes& n = head_.sizes;
        const Real* grad_o = x_.grad_o.data() + row * n.dv;
        const Real delta = dot(grad_o, o.data(), n.dv);
        const Real grad_lse =
            head_.grad_lse.empty() ? Real(0) : static_cast<Real>(head_.grad_lse[static_cast<size_t>(row)]);
        std::vector<Real> grad_q(static_cast<size_t>(n.d), 0);
        for (const PairState<Real>& pair : state.pairs) {
            const Real grad_p = dot(grad_o, x_.v.data() + pair.key * n.dv, n.dv) * kept(row, pair.key);
            const Real grad_s = pair.p * (grad_p - delta + grad_lse);
            const Real grad_product = round(grad_s * pair.cap_derivative) * static_cast<Real>(head_.score.scale);
            result_.grad_s[static_cast<size_t>(row * n.keys + pair.key)] = static_cast<double>(grad_s);
            add_scaled(grad_q.data(), grad_product, x_.k.data() + pair.key * n.d, n.d);
            add_scaled(grad_k_.data() + pair.key * n.d, grad_product, x_.q.data() + row * n.d, n.d);
            add_scaled(grad_v_.data() + pair.key * n.dv, round(pair.p * kept(row, pair.key)), grad_o, n.dv);
        }
        for (int64_t i = 0; i < n.d; ++i)
            result_.grad_q[static_cast<size_t>(row * n.d + i)] =
                static_cast<double>(round(grad_q[static_cast<size_t>(i)]));
        result_.grad_sink += static_cast<double>(state.sink_p * (grad_lse - delta));
    }

    Real kept(int64_t row, int64_t key) const { return static_cast<Real>(keep_factor(head_, row, key)); }

    const DenseHead& head_;
    DType element_;
    Operands<Real> x_;
    std::vector<Real> grad_k_, grad_v_;
    DenseResult result_;
};

}  // namespace

DenseResult exact_attention(const DenseHead& head) { return Attention<double>(head, DType::kF64).run(); }
DenseResult naive_attention(const DenseHead& head, DType element) { return Attention<float>(head, element).run(); }

}  // namespace tilewise::conformance
