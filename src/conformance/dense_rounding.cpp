// How far the allowed roundings can move each result of exact_attention, to first order and with every error of one sign. Tolerances are
// counted in these units, so that a small element beside large ones is held to its own size.
//
//   relative error of p     r_P + r_s (|s|-terms of the pair + their mean over the row) + exponential
//   dS = p (dP - delta + dlse): that of p on the whole, sums in dP and delta, the rounding of o inside delta, that of p to the element
//        type (kernels may hand dS the P that dV gets), and its own
#include <algorithm>
#include <cmath>

#include "conformance/dense.hpp"
#include "conformance/dense_row.hpp"

namespace tilewise::conformance {

namespace {

// A probability below the smallest normal f32 may be flushed to zero.
constexpr double kFlushed = 0x1p-126;
constexpr double kExpUlps = 4;  // of an exponential or a logarithm, in roundings

double absolute_dot(const double* a, const double* b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += std::fabs(a[i] * b[i]);
    return sum;
}
void add_absolute(double* sums, double factor, const double* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) sums[i] += factor * std::fabs(values[i]);
}

class Rounding {
public:
    Rounding(const DenseHead& head, const DenseResult& exact, const Roundings& roundings)
        : head_(head), exact_(exact), r_(roundings) {}

    DenseResult run() {
        const DenseSizes& n = head_.sizes;
        result_.o.assign(exact_.o.size(), 0);
        result_.lse.assign(exact_.lse.size(), 0);
        result_.grad_q.assign(exact_.grad_q.size(), 0);
        result_.grad_k.assign(exact_.grad_k.size(), 0);
        result_.grad_v.assign(exact_.grad_v.size(), 0);
        result_.grad_s.assign(exact_.grad_s.size(), 0);
        for (int64_t row = 0; row < n.rows; ++row) run_row(row);
        add_own(result_.o, exact_.o);
        add_own(result_.grad_q, exact_.grad_q);
        return std::move(result_);
    }

private:
    struct Pair {
        int64_t key;
        double p;
        double factor;  // dropout
        double terms;   // sum of the magnitudes that make the score
        double cap_derivative;
        double p_error;
    };

    void run_row(int64_t row) {
        const DenseSizes& n = head_.sizes;
        const double* q = head_.q.data() + row * n.d;
        const auto product = [&](int64_t key) {
            double sum = 0;
            for (int64_t i = 0; i < n.d; ++i) sum += q[i] * head_.k[static_cast<size_t>(key * n.d + i)];
            return sum;
        };
        const RowState<double> state = softmax_row<double>(head_, row, product);
        if (state.is_empty) return;
        std::vector<Pair> pairs;
        double mean_terms = std::isfinite(head_.score.sink) ? state.sink_p * std::fabs(head_.score.sink) : 0;
        for (const PairState<double>& pair : state.pairs) {
            const auto place = static_cast<size_t>(row * n.keys + pair.key);
            double terms = head_.score.scale * absolute_dot(q, head_.k.data() + pair.key * n.d, n.d);
            if (!head_.additive.empty()) terms += std::fabs(head_.additive[place]);
            pairs.push_back({pair.key, pair.p, keep_factor(head_, row, pair.key), terms, pair.cap_derivative, 0});
            if (pair.p > 0) mean_terms += pair.p * terms;
        }
        const double lse = std::fabs(exact_.lse[static_cast<size_t>(row)]);
        // A backward pass starts from an lse that was rounded once, and so knows p up to that.
        const double lse_error = head_.is_backward ? r_.compute * lse : 0;
        for (Pair& pair : pairs) {
            const double score_error = r_.score * (pair.terms + mean_terms) + r_.compute * kExpUlps + lse_error;
            pair.p_error = pair.p * std::min(score_error, 1.0) + kFlushed;
        }
        result_.lse[static_cast<size_t>(row)] = r_.score * mean_terms + r_.compute * (3 * lse + kExpUlps);
        for (const Pair& pair : pairs)
            add_absolute(result_.o.data() + row * n.dv, pair.factor * (pair.p_error + r_.element * pair.p) + r_.tiny,
                         head_.v.data() + pair.key * n.dv, n.dv);
        if (head_.is_backward) run_row_backward(row, pairs, state.sink_p);
    }

    void run_row_backward(int64_t row, const std::vector<Pair>& pairs, double sink_p) {
        const DenseSizes& n = head_.sizes;
        const double* grad_o = head_.grad_o.data() + row * n.dv;
        const double* o = exact_.o.data() + row * n.dv;
        const double delta = absolute_dot(grad_o, o, n.dv);
        const double grad_lse = head_.grad_lse.empty() ? 0 : std::fabs(head_.grad_lse[static_cast<size_t>(row)]);
        for (const Pair& pair : pairs) {
            const auto place = static_cast<size_t>(row * n.keys + pair.key);
            const double grad_p = pair.factor * absolute_dot(grad_o, head_.v.data() + pair.key * n.dv, n.dv);
            const double inner = grad_p + delta + grad_lse;
            const double error = (pair.p_error + r_.product * pair.p + r_.tiny) * inner + r_.element * pair.p * delta +
                                 r_.element * std::fabs(exact_.grad_s[place]);
            result_.grad_s[place] = error;
            const double own = r_.element * std::fabs(exact_.grad_s[place]) + r_.tiny;
            const double product_error = head_.score.scale * pair.cap_derivative * (error + own) +
                                         head_.score.scale * r_.compute * std::fabs(exact_.grad_s[place]);
            add_absolute(result_.grad_q.data() + row * n.d, product_error, head_.k.data() + pair.key * n.d, n.d);
            add_absolute(result_.grad_k.data() + pair.key * n.d, product_error, head_.q.data() + row * n.d, n.d);
            add_absolute(result_.grad_v.data() + pair.key * n.dv,
                         pair.factor * (pair.p_error + r_.element * pair.p) + r_.tiny, grad_o, n.dv);
        }
        result_.grad_sink +=
            sink_p * (delta + grad_lse) * (r_.element + r_.compute * kExpUlps) + sink_p * r_.score * (delta + grad_lse);
    }

    void add_own(std::vector<double>& errors, const std::vector<double>& exact) const {
        for (size_t i = 0; i < errors.size(); ++i) errors[i] += r_.element * std::fabs(exact[i]);
    }

    const DenseHead& head_;
    const DenseResult& exact_;
    const Roundings r_;
    DenseResult result_;
};

}  // namespace

DenseResult rounding_of(const DenseHead& head, const DenseResult& exact, const Roundings& roundings) {
    return Rounding(head, exact, roundings).run();
}

}  // namespace tilewise::conformance
