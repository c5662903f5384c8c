// The devices that a name can stand for: this machine's, then the recorded descriptions. Each list is made once and does not change,
// so an entry's address identifies its device for the life of the process. GPUs are asked for at the first question that needs
// them: a program that opens "cpu" only never starts the CUDA driver, and may fork.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/device.hpp"
#include "core/status.hpp"

namespace tilewise::api {

struct KnownDevice {
    std::string name;  // as tilewise_device_open takes it
    DeviceInfo info;
};

const KnownDevice& cpu_device();
// Devices that launches run on come first: the CPU, then GPUs.
size_t num_devices(bool include_recorded);
// Null outside of 0 .. num_devices(true) - 1.
const KnownDevice* device_at(size_t index);

// The entry of a name; the message of a failure says which names there are. "cuda" is the GPU that is current in this thread.
Status find_device(std::string_view name, const KnownDevice** device);

}  // namespace tilewise::api
