// The GPUs of this machine as the planner sees them. Private to the backend's host side.
#pragma once

#include "core/device_backend.hpp"

namespace tilewise::cuda {

// Every GPU that the driver shows, also those that no kernel runs on. Asked anew at each call; makes no context.
FoundDevices find_devices();
// The device of the calling thread's context, or 0 where it has none.
int32_t current_device();

// Memory bandwidth and dense 16-bit rate of a GPU whose other values are known, for parts of them that the driver does not tell:
// those of the recorded device of the same name, or else typical ones of its generation. Clocks in Hz, 0: unknown.
struct Clocks {
    double memory = 0;
    double multiprocessor = 0;
    int32_t memory_bus_bits = 0;
};
void add_rates(const Clocks& clocks, DeviceInfo* device);

}  // namespace tilewise::cuda
