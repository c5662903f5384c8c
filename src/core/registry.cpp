// Look-ups in the list of kernels, and what a row is chosen by.
#include "core/registry.hpp"

#include <algorithm>

namespace tilewise {

const KernelRow* Registry::find(const std::string& name) const {
    const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const KernelRow& r) { return r.name == name; });
    return row == rows_.end() ? nullptr : &*row;
}

DType element_type_of(const Problem& problem) {
    for (const Arg arg : {Arg::kQ, Arg::kK, Arg::kPartialO})
        if (problem.has(arg)) return problem[arg].dtype;
    return DType::kNone;
}

}  // namespace tilewise
