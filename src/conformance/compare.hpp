// Judges the outcome of a call: memory first, then what was written, then where NaN and infinities are, then the size of the errors by the
// rule of tolerance.hpp.
#pragma once

#include <string>

#include "conformance/evaluate.hpp"
#include "conformance/run.hpp"

namespace tilewise::conformance {

struct Verdict {
    std::string fault;       // empty: right
    double worst_ratio = 0;  // largest error over the largest allowed one
    bool ok() const { return fault.empty(); }
};

// `truth`: the oracle's outcome, or null to judge by the expectation's own exact values. `slack` multiplies the allowed errors.
Verdict compare(const Instance& instance, const Expectation& expectation, const Outcome& outcome, const Outcome* truth,
                double slack = 1);

}  // namespace tilewise::conformance
