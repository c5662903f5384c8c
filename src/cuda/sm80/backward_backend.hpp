// The rows of the tensor-core backward; the kernels are in bwd.cuh.
#pragma once

#include "core/registry.hpp"

namespace tilewise::cuda::sm80 {

void register_backward_rows(Registry& registry);

}  // namespace tilewise::cuda::sm80
