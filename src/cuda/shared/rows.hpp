// The rows of the kernels that no architecture has its own of.
#pragma once

#include "core/registry.hpp"

namespace tilewise::cuda {

// append and combine.
void register_shared_rows(Registry& registry);

}  // namespace tilewise::cuda
