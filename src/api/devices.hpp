// The devices that a name can stand for: this machine's, then the recorded descriptions. The list is made once and does not change, so
// an entry's address identifies its device for the life of the process.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/device.hpp"
#include "core/status.hpp"

namespace tilewise::api {

struct KnownDevice {
    std::string name;  // as tilewise_device_open takes it
    DeviceInfo info;
};

// Devices that launches run on come first; `num_real_devices` of them.
const std::vector<KnownDevice>& known_devices();
size_t num_real_devices();

// The entry of a name; the message of a failure says which names there are.
Status find_device(std::string_view name, const KnownDevice** device);

}  // namespace tilewise::api
