// How much work a problem is and how long a device needs for it at least: what the cost functions of registry rows start from.
// Only the order of two estimates matters, so dense approximations are good enough where the truth lies in the tensors' values.
#pragma once

#include "core/device.hpp"
#include "core/plan.hpp"
#include "core/problem.hpp"

namespace tilewise {

struct Work {
    double flops = 0;
    double bytes = 0;  // read and written once
};
struct Rates {
    double flops_per_second = 1;
    double bytes_per_second = 1;
};

// (query, key) pairs that the positional mask lets through, over the batch, of one head. Ragged batches count as sequences of the
// average length; mask tensors and per-row intervals count as full, since a plan does not read values.
double visible_pairs(const Problem& problem, const Sizes& sizes);
Work work_of(const Problem& problem, const Sizes& sizes);

// Peak rates: of a GPU as it states them; of `num_threads` cores that run `isa` on elements of `dtype`.
Rates cuda_rates(const DeviceInfo& device);
Rates cpu_rates(Isa isa, DType dtype, int32_t num_threads);

// The longer of computing and moving, and a tenth of the shorter.
double roofline_seconds(const Work& work, const Rates& rates);
// Of a laid out step on its row's instruction set and its own number of threads.
double roofline_seconds(const Step& step, const DeviceInfo& device);

}  // namespace tilewise
