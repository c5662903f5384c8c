// A call made up from flags: shapes only (for `plan`), or with memory that holds random data (for `bench` and `doctor`).
// Outputs start as NaN, so that an element nobody wrote is seen.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "flags.hpp"
#include "tensor_maker.hpp"

namespace tilewise::cli {

// Queries and keys of each sequence; keys include left padding and new tokens.
struct SequenceLengths {
    std::vector<int64_t> q;
    std::vector<int64_t> k;
};
// Throws UsageError for lists that disagree and for negative numbers.
SequenceLengths lengths_of(const ProblemFlags& flags);

struct Call {
    Op op = Op::kForward;
    Attention attention;      // unless op is kCombine
    Combination combination;  // if op is kCombine
    std::map<std::string, HostTensor> memory;
};
Call make_call(const ProblemFlags& flags, Contents contents, uint64_t seed = 1);

Plan plan_of(const Device& device, const Call& call);
// A backward reads what its forward wrote: runs that one, into o and lse. Nothing to do for other calls. The tensors lie on the device.
void prepare(const Device& device, const Call& call);
void launch(const Plan& plan, const Call& call, Workspace& workspace);

}  // namespace tilewise::cli
