// One call of the library on an instance: tensors in memory, plan, launch, and everything that came back.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "conformance/instance.hpp"

namespace tilewise::conformance {

struct Output {
    std::vector<double> values;
    std::vector<uint8_t> unwritten;  // 1 where the mark that was there before still stands
};

struct Outcome {
    Status status = Status::kOk;
    std::string message;  // of a refusal
    std::string kernel;   // that ran
    std::map<Slot, Output> outputs;
    std::string damage;  // empty, or the first memory that changed and must not
    bool ok() const { return status == Status::kOk; }
};

// A last change to the call before it is made, to break it on purpose.
using CallEdit = std::function<void(Attention&)>;

// The call as it is, on the kernel named (empty: the plan chooses).
Outcome run_kernel(const Device& device, const Instance& instance, const std::string& kernel = {},
                   const CallEdit& edit = {});
// The same problem in f64 on the reference kernels, which are the CPU's.
Outcome run_oracle(const Instance& instance);

}  // namespace tilewise::conformance
