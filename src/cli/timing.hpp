// Times one call of a benchmark.
//
// The call is repeated on copies of its tensors in turn, enough of them to push each other out of the caches, so that a decode
// reads its cache from memory as it does in a model. Repetitions go on until `seconds` have passed, at least a few.
//
// On a CPU every launch is timed alone, by the clock. On a GPU a batch of launches is timed by events, so that what is measured is the
// device's time, to a microsecond: before each batch the stream is given other work, long enough for the host to queue the whole
// batch behind it, and no launch waits for the host.
#pragma once

#include <vector>

#include "device_call.hpp"
#include "synthetic.hpp"

namespace tilewise::cli {

struct Timing {
    double median = 0;  // seconds of a launch; on a GPU of batches' means
    double p10 = 0;
    double p90 = 0;
    int repeats = 0;
};

// Leaves outputs on `call` itself.
Timing time_call(const Device& device, const Plan& plan, const DeviceCall& call, double seconds);

// The same call on host memory of its own.
Call copy_of(const Call& call);

// Of sorted values, between the neighbours where the position is not whole.
double quantile(const std::vector<double>& sorted, double share);

}  // namespace tilewise::cli
