// The rows of the tensor-core decode; the kernels are in decode.cuh.
#pragma once

#include "core/registry.hpp"

namespace tilewise::cuda::sm80 {

void register_decode_rows(Registry& registry);

}  // namespace tilewise::cuda::sm80
