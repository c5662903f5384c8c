// What a backward of the CUDA backend does after its tiles; the kernel is in bwd_epilogue.cu.
#pragma once

#include "core/plan.hpp"
#include "cuda/common/params.hpp"

namespace tilewise::cuda {

// On the stream, each where the f32 sums are given: grad_q = softmax_scale * scratch.dq, grad_k = softmax_scale * scratch.dk,
// grad_v = scratch.dv, dk and dv added up over their params.tiles.num_splits parts. So dq and dk are sums of dS K and dS^T Q with dS = P (dP - delta) times softcap's derivative, and no scale. All rows
// are written, those of no sequence as the 0 that the prologue left.
Status launch_bwd_epilogue(const BackwardParams& params, const Step& step, const Arguments& arguments);

}  // namespace tilewise::cuda
