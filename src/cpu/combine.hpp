// Merges attention over disjoint sets of keys, the last step of a split forward and an operation of its own:
//
//   partial_o (splits, b, sq, h, dv), partial_lse (splits, b, h, sq) -> o (b, sq, h, dv), lse (b, h, sq); ragged likewise
//
// A part whose lse is -inf counts nothing and its partial_o is not read: it may be memory that no kernel has written.
#pragma once

#include "core/plan.hpp"

namespace tilewise::cpu {

void layout_combine(Step& step, const DeviceInfo& device);
double cost_combine(const Step& step, const DeviceInfo& device);
Status launch_combine(const Step& step, const Arguments& arguments);

}  // namespace tilewise::cpu
