// make_plan: validate, break into steps, choose a row for each, lay the workspace out. Pure: the same problem, device and
// registry give the same plan; no environment variable and no clock is read here.
#include "core/plan.hpp"

#include <algorithm>
#include <cassert>

#include "core/plan_parts.hpp"
#include "core/validate.hpp"

namespace tilewise {
namespace {

int64_t end_of(const std::vector<WorkspaceBlock>& blocks) {
    int64_t end = 0;
    for (const WorkspaceBlock& block : blocks) end = std::max(end, block.offset + block.bytes);
    return end;
}

}  // namespace

int64_t Step::block(const char* name) const {
    const auto found =
        std::find_if(workspace.begin(), workspace.end(), [&](const WorkspaceBlock& b) { return b.name == name; });
    assert(found != workspace.end());
    return found == workspace.end() ? -1 : found->offset;
}

Status make_plan(const Problem& problem, const DeviceInfo& device, const Registry& registry, Plan* plan) {
    *plan = Plan{};
    plan->problem = problem;
    plan->device = device;
    if (Status status = validate(problem); !status.ok()) return status;
    std::vector<Step> steps = steps_of(problem, &plan->shared_blocks);
    const KernelRow* pinned = nullptr;
    if (Status status = find_pinned(problem, steps, registry, &pinned); !status.ok()) return status;
    plan->workspace_bytes = end_of(plan->shared_blocks);
    for (Step& step : steps) {
        if (Status status = choose_row(step, registry, pinned, plan); !status.ok()) return status;
        // Steps run one after the other, so their own blocks share the same bytes.
        plan->workspace_bytes = std::max(plan->workspace_bytes, end_of(step.workspace));
    }
    plan->steps = std::move(steps);
    plan->notes = notes_of(problem, device);
    return {};
}

}  // namespace tilewise
