// Attention by plain loops in double, straight from the formula in docs/math.md: an opinion of its own on what is right.
//
// q (b, sq, h, d), k (b, sk, hk, d), v (b, sk, hk, dv), rules -> o (b, sq, h, dv), lse (b, h, sq, 1) and the gradients of
// sum(grad_o * o). A row that sees no key has o = 0, lse = -inf and adds nothing.
#pragma once

#include <functional>
#include <numeric>
#include <optional>

#include "array.hpp"

namespace reports {

struct Place {
    std::int64_t batch, head, row, key;
};

// What happens to a score; what is left out does nothing.
struct Rules {
    std::optional<double> scale{};
    double softcap = 0.0;
    std::function<bool(const Place&)> visible{};
    std::function<double(const Place&)> bias{};  // added after the softcap
    std::function<double(const Place&)> keep{};  // factor of dropout: 0 or 1 / (1 - p)
};

// Keys of row i in a window around the diagonal, both ends included; negative: unlimited.
struct Band {
    std::int64_t left = -1, right = -1;
    bool top_left = false;
};
inline std::function<bool(const Place&)> band(std::int64_t seqlen_q, std::int64_t seqlen_k, Band window) {
    const std::int64_t offset = window.top_left ? 0 : seqlen_k - seqlen_q;
    return [=](const Place& at) {
        const std::int64_t distance = at.key - (at.row + offset);
        return (window.left < 0 || -distance <= window.left) && (window.right < 0 || distance <= window.right);
    };
}
inline std::function<bool(const Place&)> causal(std::int64_t seqlen_q, std::int64_t seqlen_k) {
    return band(seqlen_q, seqlen_k, {.right = 0});
}

struct Answer {
    Array o, lse;
};
struct Gradients {
    Array q, k, v;
};

inline Array in_double(const Array& x) {
    const Array copy(DType::kF64, x.shape());
    copy.assign(x);
    return copy;
}

class Oracle {
public:
    Oracle(const Array& q, const Array& k, const Array& v, Rules rules = {})
        : q_(in_double(q)), k_(in_double(k)), v_(in_double(v)), rules_(std::move(rules)) {
        scale_ = rules_.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
        group_ = k.size(2) == 0 ? 1 : q.size(2) / k.size(2);
    }

    struct Row {
        std::vector<double> p, slope;  // probabilities before dropout; d(score) / d(q . k)
        double lse = -kInfinity;
    };
    Row row(std::int64_t batch, std::int64_t head, std::int64_t i) const {
        const std::int64_t keys = k_.size(1);
        Row row{std::vector<double>(keys, -kInfinity), std::vector<double>(keys, 0.0), -kInfinity};
        double largest = -kInfinity;
        for (std::int64_t j = 0; j < keys; ++j) {
            const Place at{batch, head, i, j};
            if (rules_.visible && !rules_.visible(at)) continue;
            row.p[j] = score(at, &row.slope[j]);
            if (!(row.p[j] <= largest)) largest = row.p[j];  // a NaN wins
        }
        if (largest == -kInfinity) return Row{std::vector<double>(keys, 0.0), row.slope, -kInfinity};
        double sum = 0.0;
        for (const double s : row.p) sum += std::exp(s - largest);
        row.lse = largest + std::log(sum);
        for (double& s : row.p) s = std::exp(s - row.lse);
        return row;
    }
    Answer forward() const {
        const Answer answer{Array(DType::kF64, {q_.size(0), q_.size(1), q_.size(2), v_.size(3)}),
                            Array(DType::kF64, {q_.size(0), q_.size(2), q_.size(1), 1})};
        each_row([&](std::int64_t b, std::int64_t h, std::int64_t i) {
            const Row r = row(b, h, i);
            const std::vector<double> values = output(r, b, h, i);
            answer.lse.set(b, h, i, 0, r.lse);
            for (std::int64_t c = 0; c < v_.size(3); ++c) answer.o.set(b, i, h, c, values[c]);
        });
        return answer;
    }
    Gradients gradients(const Array& grad_o) const {
        const Gradients sums{Array(DType::kF64, q_.shape()).fill(0.0), Array(DType::kF64, k_.shape()).fill(0.0),
                             Array(DType::kF64, v_.shape()).fill(0.0)};
        const Array grad_o_doubles = in_double(grad_o);
        each_row([&](std::int64_t b, std::int64_t h, std::int64_t i) { add_row(sums, grad_o_doubles, {b, h, i, 0}); });
        return sums;
    }

private:
    template <class Body> void each_row(Body&& body) const {
        for (std::int64_t b = 0; b < q_.size(0); ++b)
            for (std::int64_t h = 0; h < q_.size(2); ++h)
                for (std::int64_t i = 0; i < q_.size(1); ++i) body(b, h, i);
    }
    std::vector<double> output(const Row& r, std::int64_t b, std::int64_t h, std::int64_t i) const {
        std::vector<double> o(v_.size(3), 0.0);
        for (std::int64_t j = 0; j < k_.size(1); ++j) {
            const double p = r.p[j] * kept({b, h, i, j});
            const double* const v = v_.doubles(b, j, h / group_);
            for (std::int64_t c = 0; c < v_.size(3) && p != 0.0; ++c) o[c] += p * v[c];
        }
        return o;
    }
    double kept(const Place& at) const { return rules_.keep ? rules_.keep(at) : 1.0; }

    double score(const Place& at, double* slope) const {
        const double* const q = q_.doubles(at.batch, at.row, at.head);
        double s = scale_ * std::inner_product(q, q + q_.size(3), k_.doubles(at.batch, at.key, at.head / group_), 0.0);
        *slope = scale_;
        if (rules_.softcap > 0.0) {
            const double t = std::tanh(s / rules_.softcap);
            s = rules_.softcap * t;
            *slope *= 1.0 - t * t;
        }
        return rules_.bias ? s + rules_.bias(at) : s;
    }

    static void add(double* sums, double factor, const double* values, std::int64_t count) {
        for (std::int64_t c = 0; c < count; ++c) sums[c] += factor * values[c];
    }
    void add_row(const Gradients& sums, const Array& all_grad_o, const Place& at) const {
        const auto [b, h, i, unused] = at;
        const std::int64_t keys = k_.size(1), kv = h / group_, d = q_.size(3), dv = v_.size(3);
        const Row r = row(b, h, i);
        const double* const grad_o = all_grad_o.doubles(b, i, h);
        std::vector<double> grad_p(keys, 0.0);
        double delta = 0.0;
        for (std::int64_t j = 0; j < keys; ++j) {
            if (r.p[j] == 0.0) continue;
            const double keep = kept({b, h, i, j});
            grad_p[j] = keep * std::inner_product(grad_o, grad_o + dv, v_.doubles(b, j, kv), 0.0);
            add(sums.v.doubles(b, j, kv), keep * r.p[j], grad_o, dv);
            delta += r.p[j] * grad_p[j];
        }
        for (std::int64_t j = 0; j < keys; ++j) {
            if (r.p[j] == 0.0) continue;
            const double grad_s = r.p[j] * (grad_p[j] - delta) * r.slope[j];
            add(sums.q.doubles(b, i, h), grad_s, k_.doubles(b, j, kv), d);
            add(sums.k.doubles(b, j, kv), grad_s, q_.doubles(b, i, h), d);
        }
    }

    Array q_, k_, v_;
    Rules rules_;
    double scale_ = 1.0;
    std::int64_t group_ = 1;
};

}  // namespace reports
