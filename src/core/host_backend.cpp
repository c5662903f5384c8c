// The CPU behind the interface of devices, so that a program that uses memory functions runs on either. Everything is done when
// its call returns; streams are null.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "core/device_backend.hpp"
#include "core/plan.hpp"

namespace tilewise {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::align_val_t kAlignment{kWorkspaceAlignment};

FoundDevices find_devices() { return {{detect_cpu()}, {}}; }
int32_t current_device() { return 0; }

Status allocate(int32_t, int64_t bytes, void** memory) {
    *memory = ::operator new(static_cast<size_t>(bytes), kAlignment, std::nothrow);
    if (*memory != nullptr) return {};
    return {StatusCode::kOutOfMemory, "bytes: the host has no " + std::to_string(bytes) + " bytes of memory left"};
}

Status release(int32_t, void* memory) {
    ::operator delete(memory, kAlignment);
    return {};
}

Status copy(int32_t, void* to, const void* from, int64_t bytes, void*) {
    std::memmove(to, from, static_cast<size_t>(bytes));
    return {};
}

Status fill(int32_t, void* to, uint8_t value, int64_t bytes, void*) {
    std::memset(to, value, static_cast<size_t>(bytes));
    return {};
}

Status create_stream(int32_t, void** stream) {
    *stream = nullptr;
    return {};
}
Status nothing_to_do(int32_t, void*) { return {}; }

Status create_event(int32_t, void** event) {
    *event = new Clock::time_point(Clock::now());
    return {};
}
Status destroy_event(int32_t, void* event) {
    delete static_cast<Clock::time_point*>(event);
    return {};
}
Status record_event(int32_t, void* event, void*) {
    *static_cast<Clock::time_point*>(event) = Clock::now();
    return {};
}
Status elapsed(int32_t, void* begin, void* end, double* seconds) {
    const auto passed = *static_cast<Clock::time_point*>(end) - *static_cast<Clock::time_point*>(begin);
    *seconds = std::chrono::duration<double>(passed).count();
    return {};
}

}  // namespace

const DeviceBackend& host_backend() {
    static const DeviceBackend backend{find_devices,
                                       current_device,
                                       {allocate, release, copy, fill, nullptr},
                                       {create_stream, nothing_to_do, nothing_to_do},
                                       {create_event, destroy_event, record_event, elapsed}};
    return backend;
}

}  // namespace tilewise
