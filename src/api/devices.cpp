// Lists and finds devices: the CPU and recorded devices from core, GPUs from the backend that was compiled in.
#include "api/devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/device_backend.hpp"

namespace tilewise::api {

namespace {

constexpr std::string_view kRecorded = "recorded:";
constexpr std::string_view kCuda = "cuda";

struct Gpus {
    std::vector<KnownDevice> devices;
    Status status;  // where there are none: why
};

const Gpus& gpus() {
    static const Gpus found = [] {
        Gpus list;
        const DeviceBackend* backend = device_backend(DeviceKind::kCuda);
        if (backend == nullptr) {
            list.status = Status::unsupported("this build has no CUDA kernels");
            return list;
        }
        FoundDevices there = backend->find_devices();
        list.status = there.status;
        for (DeviceInfo& info : there.devices)
            list.devices.push_back({fmt::format("{}:{}", kCuda, info.index), std::move(info)});
        return list;
    }();
    return found;
}

const std::vector<KnownDevice>& recorded() {
    static const std::vector<KnownDevice> devices = [] {
        std::vector<KnownDevice> list;
        for (const RecordedDevice& device : recorded_devices())
            list.push_back({fmt::format("{}{}", kRecorded, device.key), device.info});
        return list;
    }();
    return devices;
}

std::string recorded_names() {
    std::string names;
    for (const RecordedDevice& device : recorded_devices())
        names += fmt::format("{}{}", names.empty() ? "" : ", ", device.key);
    return names;
}

const KnownDevice* named(const std::vector<KnownDevice>& devices, std::string_view name) {
    const auto found =
        std::find_if(devices.begin(), devices.end(), [&](const auto& known) { return known.name == name; });
    return found == devices.end() ? nullptr : &*found;
}

Status find_gpu(std::string_view name, const KnownDevice** device) {
    const Gpus& found = gpus();
    if (found.devices.empty())
        return {found.status.code(),
                fmt::format("device: \"{}\" cannot be opened: {}; \"cpu\" runs, and \"recorded:NAME\" plans for a GPU "
                            "({})",
                            name, found.status.message(), recorded_names())};
    if (name == kCuda) {
        const auto current = static_cast<size_t>(device_backend(DeviceKind::kCuda)->current_device());
        *device = &found.devices[current < found.devices.size() ? current : 0];
        return {};
    }
    *device = named(found.devices, name);
    if (*device != nullptr) return {};
    return Status::invalid(fmt::format("device: \"{}\" is not there; this machine has cuda:0{}", name,
                                       found.devices.size() > 1 ? " .. " + found.devices.back().name : ""));
}

}  // namespace

const KnownDevice& cpu_device() {
    static const KnownDevice cpu{"cpu", detect_cpu()};
    return cpu;
}

size_t num_devices(bool include_recorded) {
    return 1 + gpus().devices.size() + (include_recorded ? recorded().size() : 0);
}

const KnownDevice* device_at(size_t index) {
    if (index == 0) return &cpu_device();
    size_t place = index - 1;
    for (const auto* list : {&gpus().devices, &recorded()}) {
        if (place < list->size()) return &(*list)[place];
        place -= list->size();
    }
    return nullptr;
}

Status find_device(std::string_view name, const KnownDevice** device) {
    *device = nullptr;
    if (name == cpu_device().name) {
        *device = &cpu_device();
        return {};
    }
    if (name.starts_with(kRecorded)) {
        *device = named(recorded(), name);
        if (*device != nullptr) return {};
        return Status::invalid(fmt::format("device: \"{}\" is not recorded; recorded are {}", name, recorded_names()));
    }
    if (name == kCuda || name.starts_with("cuda:")) return find_gpu(name, device);
    return Status::invalid(
        fmt::format("device: \"{}\" is unknown; allowed are \"cpu\", \"cuda:N\" and \"recorded:NAME\"", name));
}

}  // namespace tilewise::api
