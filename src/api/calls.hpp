// The path of a call behind the C functions: read, plan (or check against a plan), launch.
#pragma once

#include <cstddef>
#include <memory>

#include "api/convert.hpp"
#include "api/devices.hpp"
#include "core/plan.hpp"
#include "core/status.hpp"

namespace tilewise::api {

// The memory and the stream that a launch is given.
struct LaunchSite {
    void* workspace = nullptr;
    size_t workspace_bytes = 0;
    void* stream = nullptr;
};

// A new plan.
Status make_plan(const KnownDevice& device, Call& call, Plan* plan);
// A plan out of the cache that all one-call forms share. `call.problem` becomes the plan's own problem but for the dropout seed and offset.
Status cached_plan(const KnownDevice& device, Call& call, std::shared_ptr<const Plan>* plan);
// Launches on a plan whose problem is that of the call, the dropout seed and offset included.
Status launch(const Plan& plan, Arguments& arguments, const LaunchSite& site);
// The same with the call's own seed and offset.
Status launch(const Plan& plan, Call& call, const LaunchSite& site);
// The same after checking that the problems are equal.
Status checked_launch(const Plan& plan, Call& call, const LaunchSite& site);

}  // namespace tilewise::api
