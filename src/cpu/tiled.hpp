// The product backend: flash-style attention on the CPU for fp32, bf16 and fp16, with threads and vectors.
//
//   forward   q (b, sq, h, d), k (b, sk, hk, d), v (b, sk, hk, dv) -> o (b, sq, h, dv), lse (b, h, sq)
//   backward  + o, lse, grad_o, grad_lse -> grad_q, grad_k, grad_v, grad_bias, grad_sink
//
// ragged and paged likewise. Every feature of the contract is served, so its rows have nothing to refuse. A row of
// the registry is one instruction set; layout, cost and launch read it from step.row->isa. Results are bitwise
// repeatable for a given plan.
#pragma once

#include "core/plan.hpp"
#include "core/registry.hpp"

namespace tilewise::cpu {

double cost_tiled(const Step& step, const DeviceInfo& device);

void layout_tiled_forward(Step& step, const DeviceInfo& device);
Status launch_tiled_forward(const Step& step, const Arguments& arguments);

void layout_tiled_backward(Step& step, const DeviceInfo& device);
Status launch_tiled_backward(const Step& step, const Arguments& arguments);

}  // namespace tilewise::cpu
