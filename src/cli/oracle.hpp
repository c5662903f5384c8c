// Compares the outputs of a call that has run with the oracle: the same call in double, on the reference kernel, which is the CPU's.
// The call's tensors lie in host memory, wherever it ran.
//
// Large calls are checked in part: one sequence and one group of heads, or of those a few rows at the diagonal's end, where cutting
// does not change what a row sees; the gradients of the keys that no other row sees come with them. The gate is coarse: it
// tells a wrong result from a rounded one. `tilewise verify` has the strict rule, and the cases at the edges.
#pragma once

#include <string>

#include "synthetic.hpp"

namespace tilewise::cli {

struct OracleCheck {
    bool done = false;
    double worst = 0;   // largest error, in units of what is allowed
    std::string what;   // what was compared, or why nothing was
    std::string where;  // the output with the largest error
    bool passed() const { return done && worst <= 1; }
};

// `max_flops` bounds the work that is given to the oracle.
OracleCheck check_with_oracle(const Call& call, double max_flops);

// The largest |actual - expected| in units of what `precision` allows; infinite where only one of them is NaN or infinite.
double worst_error(const Tensor& actual, const Tensor& expected, DType precision);

}  // namespace tilewise::cli
