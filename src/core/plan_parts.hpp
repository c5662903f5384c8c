// The pieces that make_plan puts together; nobody else includes this.
#pragma once

#include <string>
#include <vector>

#include "core/plan.hpp"
#include "core/registry.hpp"
#include "core/status.hpp"

namespace tilewise {

// The steps of a call, in order, with problem, sizes, redirections and workspace base set but no row chosen, and the blocks that
// they share. One step, except a decode that appends: two.
std::vector<Step> steps_of(const Problem& problem, std::vector<WorkspaceBlock>* shared_blocks);

// The pinned row, null when nothing is pinned; a name that no row has, or a row whose op the call has no step for, is refused.
Status find_pinned(const Problem& problem, const std::vector<Step>& steps, const Registry& registry,
                   const KernelRow** pinned);

// Lays the cheapest row that serves the step out in it and adds its predicted seconds to the plan. Every other row of the step's op is
// added to plan->refused with its reason, whether one was found or not.
Status choose_row(Step& step, const Registry& registry, const KernelRow* pinned, Plan* plan);

// "its kernels are for ..." and every refusal with its reason, for the message of a call that no row serves.
std::string unsupported_message(const Step& step, const Registry& registry, const Plan& plan, size_t first_refusal);

// Refusals with the same reason as one line, "reason: kernel, kernel, ...", in the order of first appearance.
std::vector<std::string> grouped_refusals(const std::vector<Refusal>& refused, size_t first, size_t max_names);

// "1.23 ms".
std::string duration(double seconds);

// Slower paths that this problem takes on this device, each with its cause.
std::vector<std::string> notes_of(const Problem& problem, const DeviceInfo& device);

}  // namespace tilewise
