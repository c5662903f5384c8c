// Times one call of a benchmark.
//
// The call is repeated on copies of its tensors in turn, enough of them to push each other out of the caches, so that a decode
// reads its cache from memory as it does in a model. Repetitions go on until kSeconds have passed, at least kMinRepeats.
#pragma once

#include <vector>

#include "synthetic.hpp"

namespace tilewise::cli {

struct Timing {
    double median = 0;  // seconds
    double p10 = 0;
    double p90 = 0;
    int repeats = 0;
};

// Leaves the outputs of the last repetition on `call` itself.
Timing time_call(const Plan& plan, const Call& call, double seconds);

// The same call on memory of its own.
Call copy_of(const Call& call);

// Of sorted values, between the neighbours where the position is not whole.
double quantile(const std::vector<double>& sorted, double share);

}  // namespace tilewise::cli
