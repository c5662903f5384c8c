// launch: everything that can be refused is refused before the first step runs, so that a failed call has written nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "core/device_backend.hpp"
#include "core/plan.hpp"
#include "core/registry.hpp"
#include "core/validate.hpp"

namespace tilewise {
namespace {

Status check_device(const DeviceInfo& device) {
    if (!device.recorded) return {};
    const auto& recorded = recorded_devices();
    const auto found =
        std::find_if(recorded.begin(), recorded.end(), [&](const RecordedDevice& r) { return r.info == device; });
    const std::string name = found == recorded.end() ? device.name : std::string("recorded:") + found->key;
    return Status::invalid(fmt::format("device: {} is a description; nothing launches on it", name));
}

Status check_workspace(const Plan& plan, const Arguments& arguments) {
    const int64_t needed = plan.workspace_bytes;
    if (needed == 0) return {};
    if (arguments.workspace == nullptr)
        return Status::invalid(fmt::format("workspace: it is null; this plan needs {} bytes", needed));
    if (arguments.workspace_bytes < needed)
        return Status::invalid(
            fmt::format("workspace: it has {} bytes; this plan needs {}", arguments.workspace_bytes, needed));
    const auto misplaced = reinterpret_cast<uintptr_t>(arguments.workspace) % kWorkspaceAlignment;
    if (misplaced != 0)
        return Status::invalid(
            fmt::format("workspace: its address lies {} bytes past a multiple of {}; it must be a multiple", misplaced,
                        kWorkspaceAlignment));
    return {};
}

}  // namespace

Status launch(const Plan& plan, const Arguments& arguments) {
    if (plan.steps.empty()) return Status::invalid("plan: it has no steps; only a plan that was made can be launched");
    if (Status status = check_device(plan.device); !status.ok()) return status;
    if (Status status = check_pointers(plan.problem, arguments); !status.ok()) return status;
    if (Status status = check_workspace(plan, arguments); !status.ok()) return status;
    if (const DeviceBackend* backend = device_backend(plan.device.kind); backend != nullptr)
        if (Status status = check_places(plan, arguments, *backend); !status.ok()) return status;
    if (plan.device.kind == DeviceKind::kCpu)
        if (Status status = check_values(plan.problem, arguments); !status.ok()) return status;
    Arguments passed = arguments;
    passed.device = plan.device.index;
    // The forward of a decode that appends nothing reads the caller's cache_seqlens under the name that a forward knows.
    if (plan.problem.op == Op::kDecode) passed.pointers[Arg::kSequsedK] = arguments.pointers[Arg::kCacheSeqlens];
    for (const Step& step : plan.steps)
        if (Status status = step.row->launch(step, passed); !status.ok()) return status;
    return {};
}

}  // namespace tilewise
