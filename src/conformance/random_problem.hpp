// Random problems over the whole contract, well-formed and ill-formed, each a pure function of a seed. The differential test asks for thousands of
// them: every result equals the oracle's, or the call is refused by a message that names an argument.
#pragma once

#include <string>

#include "conformance/spec.hpp"

namespace tilewise::conformance {

struct RandomProblem {
    ProblemSpec spec;
    DType dtype = DType::kF32;
    std::string kernel;       // empty: the plan chooses
    bool ill_formed = false;  // to be broken in one place by a Corruption
};

// Kernels are drawn from those of the device kind: "cpu" or "cuda".
RandomProblem random_problem(uint64_t seed, const std::string& kind);

struct RandomVerdict {
    enum class Kind { kRight, kRefused, kWrong } kind = Kind::kRight;
    std::string message;  // of the refusal or the fault, with the problem
};

// Makes the problem of a seed, runs it and judges.
RandomVerdict check_random_problem(const Device& device, uint64_t seed);

}  // namespace tilewise::conformance
