// How many threads a step of a plan runs on: what the call asks for, or one a core; never more than its work is worth. (Step, DeviceInfo,
// useful threads) -> a number of at least 1. Decided once here for every row of the backend.
#pragma once

#include "core/plan.hpp"

namespace tilewise::cpu {

// Threads that the call may use.
inline int64_t threads_allowed(const Step& step, const DeviceInfo& device) {
    const int64_t wanted = step.problem.exec.num_threads > 0 ? step.problem.exec.num_threads : device.cpu.num_cores;
    return max_of<int64_t>(wanted, 1);
}

inline int32_t threads_up_to(int64_t useful, const Step& step, const DeviceInfo& device) {
    return static_cast<int32_t>(clamp_to<int64_t>(useful, 1, threads_allowed(step, device)));
}

}  // namespace tilewise::cpu
