// The rows of the kernels on CUDA cores: sm80_f32_forward and sm80_f32_backward.
#pragma once

#include "core/registry.hpp"
#include "cuda/common/params.hpp"

namespace tilewise::cuda::sm80 {

void register_f32_rows(Registry& registry);

// Fills params.grad.bias, where the call asks for it, whatever its shape; after the prologue.
Status launch_f32_bias(const BackwardParams& params, const Step& step, const Arguments& arguments);

}  // namespace tilewise::cuda::sm80
