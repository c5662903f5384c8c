// What every backward of the CUDA backend does before its tiles; the kernels are in bwd_prologue.cu.
#pragma once

#include "core/plan.hpp"
#include "core/workspace.hpp"
#include "cuda/common/params.hpp"

namespace tilewise::cuda {

// Reserves what the gradient of the sink needs in the workspace, `num_rows` rows a head; nothing where it is not asked for. Part of every
// backward's layout.
void add_sink_block(WorkspaceLayout& layout, const Step& step, int64_t num_rows);

// On the stream, from params.view (o, lse), params.grad (o, lse; q, k, v to clear) and params.scratch:
//   scratch.delta (rows) = rowsum(dO * O) - grad_lse;  0 for rows of no sequence
//   scratch.lse_log2 (rows) = lse * log2(e);  +inf where lse is -inf and for rows of no sequence
//   scratch.dq, dk, dv (all params.tiles.num_splits parts) = 0 where they are given; where they are not, zeros in the rows of grad_q, grad_k, grad_v that no sequence uses
//   grad_sink, final, if the call asks for it: from delta and lse alone, in a fixed order
Status launch_bwd_prologue(const BackwardParams& params, const Step& step, const Arguments& arguments);

// Its last two parts alone, for backwards that make delta and lse_log2 themselves: dk, dv and the gradients of unused keys; grad_sink from
// `num_rows` rows a head, of which those that no sequence has lse +inf.
Status launch_bwd_key_prologue(const BackwardParams& params, const Arguments& arguments);
Status launch_grad_sink(const BackwardParams& params, int64_t num_rows, const Step& step, const Arguments& arguments);

}  // namespace tilewise::cuda
