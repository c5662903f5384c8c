// The rows of the tensor-core forward; the kernels are in fwd.cuh.
#pragma once

#include "core/registry.hpp"

namespace tilewise::cuda::sm80 {

void register_forward_rows(Registry& registry);

}  // namespace tilewise::cuda::sm80
