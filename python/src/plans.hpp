// Devices and plans that the module keeps. The library has a cache of its own for its one-call forms; this one is keyed by a few dozen
// words instead of a whole problem, and answers workspace and launch with one look-up. All functions are called with the GIL held,
// which is the lock of both tables.
#pragma once

#include <memory>

#include "call.hpp"

namespace tilewise::python {

// Owns a plan of the library.
class Plan {
public:
    explicit Plan(tilewise_plan* plan) : plan_(plan), workspace_bytes_(tilewise_plan_workspace_bytes(plan)) {}
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;
    ~Plan() { tilewise_plan_destroy(plan_); }

    const tilewise_plan* c() const { return plan_; }
    size_t workspace_bytes() const { return workspace_bytes_; }

private:
    tilewise_plan* plan_;
    size_t workspace_bytes_;
};

// Raises what a status stands for, with the library's message; returns false.
bool raise(tilewise_status status);

// The device of that name, opened once; null with an exception set.
const tilewise_device* device_of(const char* name);

// The plan of a call where its tensors are, or on call.device_name. Null with an exception set.
std::shared_ptr<const Plan> plan_of(const Call& call);

size_t num_cached_plans();

}  // namespace tilewise::python
