// The C functions that tell what there is: version, errors, devices, kernels. Strings that no handle owns live as long as the process.
#include <memory>
#include <vector>

#include "api/convert.hpp"
#include "api/devices.hpp"
#include "api/fence.hpp"
#include "api/handles.hpp"
#include "core/registry.hpp"
#include "tilewise/tilewise.h"

#define TILEWISE_TEXT_OF(x) #x
#define TILEWISE_DOTTED(major, minor, patch) \
    TILEWISE_TEXT_OF(major) "." TILEWISE_TEXT_OF(minor) "." TILEWISE_TEXT_OF(patch)

namespace {

using namespace tilewise;
using namespace tilewise::api;

const std::vector<std::string>& kernel_objects() {
    static const std::vector<std::string> objects = [] {
        std::vector<std::string> all;
        for (const KernelRow& row : default_registry().rows()) all.push_back(to_json(row));
        return all;
    }();
    return objects;
}

// 0 where there is no memory to make the list.
template <class Count> int32_t fenced_count(Count&& count) noexcept {
    try {
        return static_cast<int32_t>(count());
    } catch (...) {
        report_exception();
        return 0;
    }
}

}  // namespace

const char* tilewise_version(void) {
    return TILEWISE_DOTTED(TILEWISE_VERSION_MAJOR, TILEWISE_VERSION_MINOR, TILEWISE_VERSION_PATCH);
}

const char* tilewise_status_name(tilewise_status status) {
    switch (number_of(status)) {
    case TILEWISE_OK: return "ok";
    case TILEWISE_INVALID_ARGUMENT: return "invalid argument";
    case TILEWISE_UNSUPPORTED: return "unsupported";
    case TILEWISE_OUT_OF_MEMORY: return "out of memory";
    case TILEWISE_DEVICE_ERROR: return "device error";
    case TILEWISE_INTERNAL: return "internal fault";
    }
    return "unknown status";
}

const char* tilewise_last_error(void) { return last_error(); }

int32_t tilewise_device_count(int32_t include_recorded) {
    return fenced_count([&] { return num_devices(include_recorded != 0); });
}

const char* tilewise_device_name(int32_t index) {
    return fenced_text([&]() -> const char* {
        const KnownDevice* known = index < 0 ? nullptr : device_at(static_cast<size_t>(index));
        return known != nullptr ? known->name.c_str() : nullptr;
    });
}

tilewise_status tilewise_device_open(const char* name, tilewise_device** device) {
    return fenced([&]() -> Status {
        if (device == nullptr) return null_argument("device", "a place for the handle is needed");
        *device = nullptr;
        if (name == nullptr) return null_argument("name", "\"cpu\", \"cuda:N\" or \"recorded:NAME\" is needed");
        const KnownDevice* known = nullptr;
        if (Status status = find_device(name, &known); !status.ok()) return status;
        *device = std::make_unique<tilewise_device>(tilewise_device{known, to_json(known->info)}).release();
        return {};
    });
}

void tilewise_device_close(tilewise_device* device) { delete device; }

const char* tilewise_device_json(const tilewise_device* device) {
    return device != nullptr ? device->json.c_str() : "";
}

int32_t tilewise_kernel_count(void) {
    return fenced_count([] { return kernel_objects().size(); });
}

const char* tilewise_kernel_json(int32_t index) {
    return fenced_text([&]() -> const char* {
        const std::vector<std::string>& objects = kernel_objects();
        const bool is_inside = index >= 0 && static_cast<size_t>(index) < objects.size();
        return is_inside ? objects[static_cast<size_t>(index)].c_str() : nullptr;
    });
}
