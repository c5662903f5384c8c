// The oracle: attention as the contract writes it, in plain double loops. One row of scores at a time, a two-pass softmax over the
// keys that the row sees, no tiles, no vectors, never optimised. Every other kernel is judged against it.
//
//   forward   q, k, v -> o, lse
//   backward  q, k, v, grad_o, grad_lse -> grad_q, grad_k, grad_v, grad_bias, grad_sink
//
// Inputs of any element type are read as double and each output is rounded once. The backward pass recomputes the probabilities
// and does not read o and lse, so that their rounding (or a fault of the forward kernel that made them) cannot reach its answer.
#pragma once

#include <string>

#include "core/plan.hpp"
#include "core/registry.hpp"

namespace tilewise::cpu {

std::string refuse_reference(const KernelRow& row, const Problem& problem, const DeviceInfo& device);
void layout_reference_forward(Step& step, const DeviceInfo& device);
void layout_reference_backward(Step& step, const DeviceInfo& device);
double cost_reference(const Step& step, const DeviceInfo& device);
Status launch_reference_forward(const Step& step, const Arguments& arguments);
Status launch_reference_backward(const Step& step, const Arguments& arguments);

}  // namespace tilewise::cpu
