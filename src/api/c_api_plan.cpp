// The C functions that make, describe and launch plans.
#include <memory>
#include <utility>

#include "api/calls.hpp"
#include "api/fence.hpp"
#include "api/handles.hpp"
#include "core/registry.hpp"
#include "tilewise/tilewise.h"

namespace {

using namespace tilewise;
using namespace tilewise::api;

// `read` fills the call from the caller's struct.
template <class Read> Status create_plan(const tilewise_device* device, tilewise_plan** handle, Read&& read) {
    if (handle == nullptr) return null_argument("plan", "a place for the handle is needed");
    *handle = nullptr;
    if (device == nullptr) return null_argument("device", "open one with tilewise_device_open");
    Call call;
    if (Status status = read(&call); !status.ok()) return status;
    auto made = std::make_unique<tilewise_plan>();
    if (Status status = make_plan(*device->known, call, &made->plan); !status.ok()) return status;
    // The last step is the attention itself; what prepares for it comes before.
    if (!made->plan.steps.empty()) made->kernel = made->plan.steps.back().row->name;
    *handle = made.release();
    return {};
}

template <class Read> Status launch_plan(const tilewise_plan* handle, const LaunchSite& site, Read&& read) {
    if (handle == nullptr) return null_argument("plan", "make one with tilewise_plan_create");
    Call call;
    if (Status status = read(&call); !status.ok()) return status;
    return checked_launch(handle->plan, call, site);
}

}  // namespace

tilewise_status tilewise_plan_create(const tilewise_device* device, tilewise_op op, const tilewise_attention* attention,
                                     tilewise_plan** plan) {
    return fenced([&]() -> Status {
        const auto read = [&](Call* call) { return read_call(number_of(op), attention, call); };
        if (Status status = create_plan(device, plan, read); !status.ok()) return status;
        if (attention->struct_size == sizeof *attention) (*plan)->call = *attention;
        return {};
    });
}

tilewise_status tilewise_plan_create_combine(const tilewise_device* device, const tilewise_combination* combination,
                                             tilewise_plan** plan) {
    return fenced([&] { return create_plan(device, plan, [&](Call* call) { return read_call(combination, call); }); });
}

void tilewise_plan_destroy(tilewise_plan* plan) { delete plan; }

size_t tilewise_plan_workspace_bytes(const tilewise_plan* plan) {
    return plan != nullptr ? static_cast<size_t>(plan->plan.workspace_bytes) : 0;
}

const char* tilewise_plan_kernel(const tilewise_plan* plan) { return plan != nullptr ? plan->kernel.c_str() : ""; }

const char* tilewise_plan_text(const tilewise_plan* plan) {
    if (plan == nullptr) return "";
    return fenced_text([&] {
        std::call_once(plan->text_written, [&] { plan->text = to_text(plan->plan); });
        return plan->text.c_str();
    });
}

const char* tilewise_plan_json(const tilewise_plan* plan) {
    if (plan == nullptr) return "";
    return fenced_text([&] {
        std::call_once(plan->json_written, [&] { plan->json = to_json(plan->plan); });
        return plan->json.c_str();
    });
}

tilewise_status tilewise_launch(const tilewise_plan* plan, const tilewise_attention* attention, void* workspace,
                                size_t workspace_bytes, void* stream) {
    const LaunchSite site{workspace, workspace_bytes, stream};
    return fenced([&]() -> Status {
        Arguments arguments;
        if (plan != nullptr && attention != nullptr && read_again(plan->call, *attention, &arguments))
            return launch(plan->plan, arguments, site);
        return launch_plan(plan, site, [&](Call* call) -> Status {
            if (plan->plan.problem.op == Op::kCombine)
                return Status::invalid("plan: was made for combine; launch it with tilewise_launch_combine");
            return read_call(static_cast<int32_t>(plan->plan.problem.op), attention, call);
        });
    });
}

tilewise_status tilewise_launch_combine(const tilewise_plan* plan, const tilewise_combination* combination,
                                        void* workspace, size_t workspace_bytes, void* stream) {
    return fenced([&] {
        return launch_plan(plan, {workspace, workspace_bytes, stream}, [&](Call* call) -> Status {
            if (plan->plan.problem.op != Op::kCombine)
                return Status::invalid("plan: was not made for combine; launch it with tilewise_launch");
            return read_call(combination, call);
        });
    });
}
