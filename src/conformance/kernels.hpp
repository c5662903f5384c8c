// The kernels of the library that is loaded, read from their JSON.
#pragma once

#include <string>
#include <vector>

#include "tilewise/tilewise.hpp"

namespace tilewise::conformance {

struct Kernel {
    std::string name;
    std::string device;  // "cpu" or "cuda"
    std::string op;      // "forward", "backward", "append", "combine"
    std::vector<DType> dtypes;
};

std::vector<Kernel> list_kernels();
// True for the oracle's own rows, which have nothing else to be held against than the tests' second opinion.
bool is_reference(const Kernel& kernel);

}  // namespace tilewise::conformance
