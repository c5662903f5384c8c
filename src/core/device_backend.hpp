// What a kind of device offers beside kernels: which devices there are, and memory, streams and events on them. A backend
// fills the tables; core and the C interface reach it through these function pointers only. Device numbers count within the kind.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/device.hpp"
#include "core/status.hpp"

namespace tilewise {

struct Plan;
struct Arguments;

struct FoundDevices {
    std::vector<DeviceInfo> devices;
    Status status;  // where there are none: why, and what to do
};

// Where an address lies, as far as a launch on one device cares.
struct PointerPlace {
    enum class Kind : uint8_t { kUsable, kHost, kOtherDevice };
    Kind kind = Kind::kUsable;
    int32_t device = 0;  // of kOtherDevice
};

struct MemoryFunctions {
    // `bytes` > 0; aligned to kWorkspaceAlignment at least.
    Status (*allocate)(int32_t device, int64_t bytes, void** memory) = nullptr;
    Status (*release)(int32_t device, void* memory) = nullptr;
    // Ordered on the stream. Either end may lie in host memory or on any device.
    Status (*copy)(int32_t device, void* to, const void* from, int64_t bytes, void* stream) = nullptr;
    Status (*fill)(int32_t device, void* to, uint8_t value, int64_t bytes, void* stream) = nullptr;
    // Fills `places` for as many pointers. Must neither wait nor be an operation of a stream, since a launch may be captured in a graph.
    // Null: every address is usable.
    Status (*locate)(int32_t device, std::span<const void* const> pointers, std::span<PointerPlace> places) = nullptr;
};

// A stream is what the caller's `stream` arguments are; null is the device's default one.
struct StreamFunctions {
    Status (*create)(int32_t device, void** stream) = nullptr;
    Status (*destroy)(int32_t device, void* stream) = nullptr;
    Status (*synchronize)(int32_t device, void* stream) = nullptr;
};

// Points in a stream, for timing.
struct EventFunctions {
    Status (*create)(int32_t device, void** event) = nullptr;
    Status (*destroy)(int32_t device, void* event) = nullptr;
    Status (*record)(int32_t device, void* event, void* stream) = nullptr;
    // Waits for `end`.
    Status (*elapsed)(int32_t device, void* begin, void* end, double* seconds) = nullptr;
};

struct DeviceBackend {
    FoundDevices (*find_devices)() = nullptr;
    int32_t (*current_device)() = nullptr;  // of the calling thread
    MemoryFunctions memory;
    StreamFunctions streams;
    EventFunctions events;
};

// The host as a device: memory of this process, no streams, a clock for events.
const DeviceBackend& host_backend();

// The backend of a kind; null where this build has none.
const DeviceBackend* device_backend(DeviceKind kind);

// Refuses, by the argument's name, a tensor or workspace that the plan's device cannot use. `arguments` passed check_pointers.
Status check_places(const Plan& plan, const Arguments& arguments, const DeviceBackend& backend);

}  // namespace tilewise
