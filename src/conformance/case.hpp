// The named cases that every kernel is swept over. A case is a spec and the passes that it is for; cases.inc lists them.
#pragma once

#include <string>
#include <vector>

#include "conformance/spec.hpp"

namespace tilewise::conformance {

struct Case {
    std::string name;
    ProblemSpec spec;
    bool for_backward = false;  // the same problem is also a backward case
};

// In the order of cases.inc.
const std::vector<Case>& all_cases();
// The case as a problem of a backward kernel.
ProblemSpec backward_spec(const Case& forward_case);

}  // namespace tilewise::conformance
