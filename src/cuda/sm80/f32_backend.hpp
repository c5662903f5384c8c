// The rows of the kernels on CUDA cores: sm80_f32_forward and sm80_f32_backward.
#pragma once

#include "core/registry.hpp"

namespace tilewise::cuda::sm80 {

void register_f32_rows(Registry& registry);

}  // namespace tilewise::cuda::sm80
