// Cases of the combine operation, which has tensors of its own: partial outputs of disjoint key sets and their lse.
#pragma once

#include <string>
#include <vector>

#include "conformance/spec.hpp"

namespace tilewise::conformance {

// Axes of partial_o.
struct CombineSizes {
    int64_t splits = 3, batch = 2, rows = 17, heads = 3, dim = 24;
};

struct CombineCase {
    std::string name;
    CombineSizes sizes;
    bool ragged = false;
    double empty_parts = 0.2;  // share of parts with lse = -inf and NaN as output
    double lse_scale = 2;      // spread of the parts' lse
    DType output = DType::kF32;
    Layout layout = Layout::kContiguous;
    bool lse = true;
    uint64_t seed = 17;
};

const std::vector<CombineCase>& all_combine_cases();

struct CombineVerdict {
    std::string fault;  // empty: right
    double worst_ratio = 0;
};
// Runs the case with partial outputs of type `dtype` on a kernel.
CombineVerdict run_combine_case(const Device& device, const CombineCase& combine_case, DType dtype,
                                const std::string& kernel);

}  // namespace tilewise::conformance
