// The kernels on CUDA cores for bf16 tensors. A file for each element type: they compile side by side.
#include "cuda/sm80/f32_bias.cuh"
#include "cuda/sm80/f32_bwd.cuh"
#include "cuda/sm80/f32_fwd.cuh"

namespace tilewise::cuda::sm80 {

template const void* f32_forward_entry<BF16>(int);
template const void* f32_backward_entry<BF16>(F32Gradient, int);
template const void* f32_bias_entry<BF16>();

}  // namespace tilewise::cuda::sm80
