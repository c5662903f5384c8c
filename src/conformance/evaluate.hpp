// What a call must answer: for every output of an instance and every element of it the exact value, the value of a naive computation in
// the same precision, the size of the allowed roundings, and whether the element is written at all.
#pragma once

#include <map>
#include <vector>

#include "conformance/instance.hpp"

namespace tilewise::conformance {

enum class State : uint8_t {
    kUntouched,  // keeps what it held
    kWritten,
    kMayBeNaN,  // written; NaN is right as well (a value that the row does not see is NaN)
};

struct Expected {
    std::vector<double> exact;
    std::vector<double> naive;
    std::vector<double> rounding;
    std::vector<State> state;
};

using Expectation = std::map<Slot, Expected>;

// For Op::kBackward this also gives the instance the o and lse that a forward pass hands over: the exact ones, rounded.
Expectation evaluate(Instance& instance);

}  // namespace tilewise::conformance
