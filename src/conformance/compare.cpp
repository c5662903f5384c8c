// See compare.hpp. A fault names the tensor, the place of its worst element, both values and how many elements are wrong.
#include "conformance/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "conformance/tolerance.hpp"

namespace tilewise::conformance {

namespace {

struct Comparison {
    const TensorData& tensor;
    const Expected& expected;
    const Output& output;
    const std::vector<double>& truth;
};

std::string place_of(const TensorData& tensor, size_t index) {
    std::string text = "]";
    for (size_t axis = tensor.shape.size(); axis-- > 0;) {
        const auto size = static_cast<size_t>(tensor.shape[axis]);
        text = fmt::format("{}{}{}", axis == 0 ? "[" : ", ", index % size, text);
        index /= size;
    }
    return text;
}

bool may_differ(const Comparison& c, size_t i) {
    return c.expected.state[i] == State::kUntouched ||
           (c.expected.state[i] == State::kMayBeNaN && std::isnan(c.output.values[i]));
}

std::string find_unwritten(const Comparison& c) {
    for (size_t i = 0; i < c.truth.size(); ++i) {
        const bool unwritten = c.output.unwritten[i] != 0;
        if (c.tensor.access == Access::kInOut) continue;  // its other elements are guarded bytes
        if (c.expected.state[i] == State::kUntouched && !unwritten)
            return fmt::format("{} was written ({}), and it belongs to no sequence", place_of(c.tensor, i),
                               c.output.values[i]);
        if (c.expected.state[i] != State::kUntouched && unwritten)
            return fmt::format("{} was not written", place_of(c.tensor, i));
    }
    return {};
}

std::string find_special(const Comparison& c) {
    for (size_t i = 0; i < c.truth.size(); ++i) {
        if (may_differ(c, i)) continue;
        const double value = c.output.values[i], truth = c.truth[i];
        const bool same = std::isnan(truth)   ? std::isnan(value)
                          : std::isinf(truth) ? value == truth
                                              : std::isfinite(value);
        if (!same) return fmt::format("{} is {}; {} is right", place_of(c.tensor, i), value, truth);
    }
    return {};
}

// Error in units of the element's rounding; an error where none is allowed is infinite.
double units(double error, double rounding) {
    if (error == 0) return 0;
    return rounding > 0 ? error / rounding : std::numeric_limits<double>::infinity();
}

double allowed_units(const Instance& instance, const Expected& expected) {
    if (instance.dtype == DType::kF64) return kDoubleUnits;
    double naive = 0;
    for (size_t i = 0; i < expected.exact.size(); ++i) {
        const double error = std::fabs(expected.naive[i] - expected.exact[i]);
        if (std::isfinite(error) && expected.rounding[i] > 0)
            naive = std::max(naive, units(error, expected.rounding[i]));
    }
    return std::max(kNaiveFactor * naive, kLeastUnits);
}

std::string find_error(const Comparison& c, double allowed, double* worst_ratio) {
    size_t worst = 0, wrong = 0;
    double worst_here = 0;
    for (size_t i = 0; i < c.truth.size(); ++i) {
        if (may_differ(c, i) || !std::isfinite(c.truth[i])) continue;
        const double ratio = units(std::fabs(c.output.values[i] - c.truth[i]), c.expected.rounding[i]) / allowed;
        if (ratio > 1) ++wrong;
        if (ratio > worst_here) {
            worst_here = ratio;
            worst = i;
        }
    }
    *worst_ratio = std::max(*worst_ratio, worst_here);
    if (wrong == 0) return {};
    return fmt::format("{} is {:.9g} instead of {:.9g}, {:.3g} times the allowed error; {} of {} elements are wrong",
                       place_of(c.tensor, worst), c.output.values[worst], c.truth[worst], worst_here, wrong,
                       c.truth.size());
}

}  // namespace

Verdict compare(const Instance& instance, const Expectation& expectation, const Outcome& outcome, const Outcome* truth,
                double slack) {
    Verdict verdict;
    if (!outcome.ok()) {
        verdict.fault = outcome.message;
        return verdict;
    }
    verdict.fault = outcome.damage;
    for (const auto& [slot, expected] : expectation) {
        if (!verdict.ok()) return verdict;
        const Comparison comparison{instance.at(slot), expected, outcome.outputs.at(slot),
                                    truth != nullptr ? truth->outputs.at(slot).values : expected.exact};
        std::string fault = find_unwritten(comparison);
        if (fault.empty()) fault = find_special(comparison);
        if (fault.empty())
            fault = find_error(comparison, slack * allowed_units(instance, expected), &verdict.worst_ratio);
        if (!fault.empty()) verdict.fault = name_of(slot) + fault;
    }
    return verdict;
}

}  // namespace tilewise::conformance
