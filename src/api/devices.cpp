// Lists and finds devices. The CPU is the only kind that this build detects; recorded devices come from core.
#include "api/devices.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tilewise::api {

namespace {

constexpr std::string_view kRecorded = "recorded:";
constexpr std::string_view kCuda = "cuda";

std::vector<KnownDevice> list_devices() {
    std::vector<KnownDevice> devices;
    devices.push_back({"cpu", detect_cpu()});
    for (const RecordedDevice& recorded : recorded_devices())
        devices.push_back({fmt::format("{}{}", kRecorded, recorded.key), recorded.info});
    return devices;
}

std::string recorded_names() {
    std::string names;
    for (const RecordedDevice& recorded : recorded_devices())
        names += fmt::format("{}{}", names.empty() ? "" : ", ", recorded.key);
    return names;
}

}  // namespace

const std::vector<KnownDevice>& known_devices() {
    static const std::vector<KnownDevice> devices = list_devices();
    return devices;
}

size_t num_real_devices() {
    const auto& devices = known_devices();
    return static_cast<size_t>(
        std::count_if(devices.begin(), devices.end(), [](const KnownDevice& device) { return !device.info.recorded; }));
}

Status find_device(std::string_view name, const KnownDevice** device) {
    for (const KnownDevice& known : known_devices()) {
        if (known.name != name) continue;
        *device = &known;
        return {};
    }
    if (name.starts_with(kRecorded))
        return Status::invalid(fmt::format("device: \"{}\" is not recorded; recorded are {}", name, recorded_names()));
    if (name == kCuda || name.starts_with("cuda:"))
        return Status::unsupported(
            fmt::format("device: \"{}\" cannot be opened: this build has no CUDA kernels; \"cpu\" runs, and "
                        "\"recorded:NAME\" plans for a GPU "
                        "({})",
                        name, recorded_names()));
    return Status::invalid(
        fmt::format("device: \"{}\" is unknown; allowed are \"cpu\", \"cuda:N\" and \"recorded:NAME\"", name));
}

}  // namespace tilewise::api
