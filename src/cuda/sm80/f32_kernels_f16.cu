// The kernels on CUDA cores for f16 tensors. A file for each element type: they compile side by side.
#include "cuda/sm80/f32_bias.cuh"
#include "cuda/sm80/f32_bwd.cuh"
#include "cuda/sm80/f32_fwd.cuh"

namespace tilewise::cuda::sm80 {

template const void* f32_forward_entry<F16>(int);
template const void* f32_backward_entry<F16>(F32Gradient, int);
template const void* f32_bias_entry<F16>();

}  // namespace tilewise::cuda::sm80
