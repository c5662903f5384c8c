// The C functions for memory, streams and events: arguments are checked here, the work is the backend's.
#include <fmt/format.h>

#include <limits>
#include <memory>

#include "api/fence.hpp"
#include "api/handles.hpp"
#include "core/device_backend.hpp"
#include "tilewise/tilewise.h"

namespace {

using namespace tilewise;
using namespace tilewise::api;

Status backend_of(const KnownDevice& known, const DeviceBackend** backend) {
    if (known.info.recorded)
        return Status::invalid(fmt::format("device: {} is a description; it has no memory and no streams", known.name));
    *backend = device_backend(known.info.kind);
    if (*backend != nullptr) return {};
    return {StatusCode::kInternal, fmt::format("device: {} has no backend", known.name)};
}

// `use` gets the backend and the device's number.
template <class Use> tilewise_status on(const tilewise_device* device, Use&& use) noexcept {
    return fenced([&]() -> Status {
        if (device == nullptr) return null_argument("device", "open one with tilewise_device_open");
        const DeviceBackend* backend = nullptr;
        if (Status status = backend_of(*device->known, &backend); !status.ok()) return status;
        return use(*backend, device->known->info.index);
    });
}

template <class Use> tilewise_status on(const tilewise_event* event, const char* name, Use&& use) noexcept {
    return fenced([&]() -> Status {
        if (event == nullptr) return null_argument(name, "make one with tilewise_event_create");
        const DeviceBackend* backend = nullptr;
        if (Status status = backend_of(*event->known, &backend); !status.ok()) return status;
        return use(*backend, event->known->info.index);
    });
}

Status check_size(size_t bytes) {
    constexpr auto kLargest = static_cast<size_t>(std::numeric_limits<int64_t>::max());
    if (bytes <= kLargest) return {};
    return {StatusCode::kOutOfMemory, fmt::format("bytes: {}; no device has more than {}", bytes, kLargest)};
}

Status check_end(const char* name, const void* memory, size_t bytes) {
    if (memory == nullptr && bytes > 0)
        return Status::invalid(fmt::format("{}: null; memory of {} bytes is needed", name, bytes));
    return check_size(bytes);
}

}  // namespace

tilewise_status tilewise_allocate(const tilewise_device* device, size_t bytes, void** memory) {
    return on(device, [&](const DeviceBackend& backend, int32_t index) -> Status {
        if (memory == nullptr) return null_argument("memory", "a place for the address is needed");
        *memory = nullptr;
        if (Status status = check_size(bytes); !status.ok() || bytes == 0) return status;
        return backend.memory.allocate(index, static_cast<int64_t>(bytes), memory);
    });
}

tilewise_status tilewise_free(const tilewise_device* device, void* memory) {
    return on(device, [&](const DeviceBackend& backend, int32_t index) -> Status {
        return memory == nullptr ? Status() : backend.memory.release(index, memory);
    });
}

tilewise_status tilewise_copy(const tilewise_device* device, void* to, const void* from, size_t bytes, void* stream) {
    return on(device, [&](const DeviceBackend& backend, int32_t index) -> Status {
        if (Status status = check_end("to", to, bytes); !status.ok()) return status;
        if (Status status = check_end("from", from, bytes); !status.ok() || bytes == 0) return status;
        return backend.memory.copy(index, to, from, static_cast<int64_t>(bytes), stream);
    });
}

tilewise_status tilewise_fill(const tilewise_device* device, void* to, uint8_t value, size_t bytes, void* stream) {
    return on(device, [&](const DeviceBackend& backend, int32_t index) -> Status {
        if (Status status = check_end("to", to, bytes); !status.ok() || bytes == 0) return status;
        return backend.memory.fill(index, to, value, static_cast<int64_t>(bytes), stream);
    });
}

tilewise_status tilewise_synchronize(const tilewise_device* device, void* stream) {
    return on(device, [&](const DeviceBackend& backend, int32_t index) -> Status {
        return backend.streams.synchronize(index, stream);
    });
}

tilewise_status tilewise_stream_create(const tilewise_device* device, void** stream) {
    return on(device, [&](const DeviceBackend& backend, int32_t index) -> Status {
        if (stream == nullptr) return null_argument("stream", "a place for the stream is needed");
        *stream = nullptr;
        return backend.streams.create(index, stream);
    });
}

tilewise_status tilewise_stream_destroy(const tilewise_device* device, void* stream) {
    return on(device, [&](const DeviceBackend& backend, int32_t index) -> Status {
        return stream == nullptr ? Status() : backend.streams.destroy(index, stream);
    });
}

tilewise_status tilewise_event_create(const tilewise_device* device, tilewise_event** event) {
    return on(device, [&](const DeviceBackend& backend, int32_t index) -> Status {
        if (event == nullptr) return null_argument("event", "a place for the handle is needed");
        *event = nullptr;
        auto made = std::make_unique<tilewise_event>(tilewise_event{device->known, nullptr});
        if (Status status = backend.events.create(index, &made->event); !status.ok()) return status;
        *event = made.release();
        return {};
    });
}

tilewise_status tilewise_event_record(tilewise_event* event, void* stream) {
    return on(event, "event", [&](const DeviceBackend& backend, int32_t index) -> Status {
        return backend.events.record(index, event->event, stream);
    });
}

tilewise_status tilewise_event_elapsed(const tilewise_event* begin, const tilewise_event* end, double* seconds) {
    return on(begin, "begin", [&](const DeviceBackend& backend, int32_t index) -> Status {
        if (end == nullptr) return null_argument("end", "make one with tilewise_event_create");
        if (seconds == nullptr) return null_argument("seconds", "a place for the number is needed");
        *seconds = 0;
        if (end->known != begin->known)
            return Status::invalid(fmt::format("end: is an event of {}; begin is one of {}: both must be of one device",
                                               end->known->name, begin->known->name));
        return backend.events.elapsed(index, begin->event, end->event, seconds);
    });
}

void tilewise_event_destroy(tilewise_event* event) {
    if (event == nullptr) return;
    static_cast<void>(on(event, "event", [&](const DeviceBackend& backend, int32_t index) -> Status {
        return backend.events.destroy(index, event->event);
    }));
    delete event;
}
