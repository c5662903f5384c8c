// The one-call forms: plan through the shared cache, then launch.
#include <memory>

#include "api/calls.hpp"
#include "api/fence.hpp"
#include "api/handles.hpp"
#include "tilewise/tilewise.h"

namespace {

using namespace tilewise;
using namespace tilewise::api;

// `read` fills the call from the caller's struct, `use` gets the plan and the call.
template <class Read, class Use>
tilewise_status with_plan(const tilewise_device* device, Read&& read, Use&& use) noexcept {
    return fenced([&]() -> Status {
        if (device == nullptr) return null_argument("device", "open one with tilewise_device_open");
        Call call;
        if (Status status = read(&call); !status.ok()) return status;
        std::shared_ptr<const Plan> plan;
        if (Status status = cached_plan(*device->known, call, &plan); !status.ok()) return status;
        return use(*plan, call);
    });
}

tilewise_status run(const tilewise_device* device, tilewise_op op, const tilewise_attention* attention,
                    const LaunchSite& site) noexcept {
    return with_plan(
        device, [&](Call* call) { return read_call(op, attention, call); },
        [&](const Plan& plan, Call& call) { return launch(plan, call, site); });
}

template <class Read> tilewise_status query_bytes(const tilewise_device* device, size_t* bytes, Read&& read) noexcept {
    if (bytes == nullptr) return fenced([] { return null_argument("bytes", "a place for the number is needed"); });
    *bytes = 0;
    return with_plan(device, read, [&](const Plan& plan, Call&) -> Status {
        *bytes = static_cast<size_t>(plan.workspace_bytes);
        return {};
    });
}

}  // namespace

tilewise_status tilewise_workspace_bytes(const tilewise_device* device, tilewise_op op,
                                         const tilewise_attention* attention, size_t* bytes) {
    return query_bytes(device, bytes, [&](Call* call) { return read_call(number_of(op), attention, call); });
}

tilewise_status tilewise_workspace_bytes_combine(const tilewise_device* device, const tilewise_combination* combination,
                                                 size_t* bytes) {
    return query_bytes(device, bytes, [&](Call* call) { return read_call(combination, call); });
}

tilewise_status tilewise_forward(const tilewise_device* device, const tilewise_attention* attention, void* workspace,
                                 size_t workspace_bytes, void* stream) {
    return run(device, TILEWISE_FORWARD, attention, {workspace, workspace_bytes, stream});
}

tilewise_status tilewise_backward(const tilewise_device* device, const tilewise_attention* attention, void* workspace,
                                  size_t workspace_bytes, void* stream) {
    return run(device, TILEWISE_BACKWARD, attention, {workspace, workspace_bytes, stream});
}

tilewise_status tilewise_decode(const tilewise_device* device, const tilewise_attention* attention, void* workspace,
                                size_t workspace_bytes, void* stream) {
    return run(device, TILEWISE_DECODE, attention, {workspace, workspace_bytes, stream});
}

tilewise_status tilewise_append(const tilewise_device* device, const tilewise_attention* attention, void* workspace,
                                size_t workspace_bytes, void* stream) {
    return run(device, TILEWISE_APPEND, attention, {workspace, workspace_bytes, stream});
}

tilewise_status tilewise_combine(const tilewise_device* device, const tilewise_combination* combination,
                                 void* workspace, size_t workspace_bytes, void* stream) {
    return with_plan(
        device, [&](Call* call) { return read_call(combination, call); },
        [&](const Plan& plan, Call& call) {
            return launch(plan, call, {workspace, workspace_bytes, stream});
        });
}
