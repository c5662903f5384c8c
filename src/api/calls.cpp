// Plans and launches calls. The dropout seed and offset change with every training step and no decision depends on them, so they are no part of
// a cached plan's key; a launch puts its own into a copy of the steps.
#include "api/calls.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "api/environment.hpp"
#include "api/plan_cache.hpp"
#include "api/same_problem.hpp"
#include "core/registry.hpp"

namespace tilewise::api {

namespace {

// Enough for every layer shape, sequence length bucket and direction of one training run; about 10 KB a plan.
constexpr size_t kCachedPlans = 512;

bool same_dropout(const ScoreSpec& a, const ScoreSpec& b) {
    return a.dropout_seed == b.dropout_seed && a.dropout_offset == b.dropout_offset;
}

void set_dropout(const ScoreSpec& from, Problem* problem) {
    problem->score.dropout_seed = from.dropout_seed;
    problem->score.dropout_offset = from.dropout_offset;
}

// What a launch reads of the plan, with the seed and offset of `score`.
Plan with_dropout(const Plan& plan, const ScoreSpec& score) {
    Plan copy;
    copy.problem = plan.problem;
    copy.device = plan.device;
    copy.steps = plan.steps;
    copy.shared_blocks = plan.shared_blocks;
    copy.workspace_bytes = plan.workspace_bytes;
    set_dropout(score, &copy.problem);
    for (Step& step : copy.steps) set_dropout(score, &step.problem);
    return copy;
}

}  // namespace

Status make_plan(const KnownDevice& device, Call& call, Plan* plan) {
    if (Status status = apply_environment(device.info, &call.problem); !status.ok()) return status;
    return tilewise::make_plan(call.problem, device.info, default_registry(), plan);
}

Status cached_plan(const KnownDevice& device, Call& call, std::shared_ptr<const Plan>* plan) {
    static PlanCache cache(kCachedPlans);
    if (Status status = apply_environment(device.info, &call.problem); !status.ok()) return status;
    Problem& problem = call.problem;
    const ScoreSpec score = problem.score;
    // Without dropout a seed has no effect, and validate must see it to refuse it.
    if (score.dropout_p != 0.0f) set_dropout({}, &problem);
    const Status status = cache.plan_for(device, problem, plan);
    set_dropout(score, &problem);
    return status;
}

Status launch(const Plan& plan, Arguments& arguments, const LaunchSite& site) {
    constexpr size_t kLargest = static_cast<size_t>(std::numeric_limits<int64_t>::max());
    arguments.workspace = site.workspace;
    arguments.workspace_bytes = static_cast<int64_t>(std::min(site.workspace_bytes, kLargest));
    arguments.stream = site.stream;
    return tilewise::launch(plan, arguments);
}

Status launch(const Plan& plan, Call& call, const LaunchSite& site) {
    if (same_dropout(plan.problem.score, call.problem.score)) return launch(plan, call.arguments, site);
    return launch(with_dropout(plan, call.problem.score), call.arguments, site);
}

Status checked_launch(const Plan& plan, Call& call, const LaunchSite& site) {
    if (Status status = apply_environment(plan.device, &call.problem); !status.ok()) return status;
    if (Status status = check_same(plan.problem, call.problem); !status.ok()) return status;
    return launch(plan, call, site);
}

}  // namespace tilewise::api
