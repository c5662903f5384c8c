// Devices, and memory, streams and events on them, for C++; include tilewise/tilewise.hpp, which includes this.
//
// A program needs these to use a GPU without linking CUDA; one that has CUDA may pass its own pointers and streams instead. On the
// CPU they work on host memory, and everything is done on return.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "tilewise/tensor.hpp"
#include "tilewise/tilewise.h"

namespace tilewise {
inline namespace v0 {

// "cpu", "cuda:0", "cuda", or "recorded:NAME" (plans only). Plans stay valid after their device is gone, and what is made on a device
// keeps it open. A copy is the same device.
class Device {
public:
    explicit Device(const std::string& name) : is_host_(name == "cpu") {
        tilewise_device* device = nullptr;
        detail::check(tilewise_device_open(name.c_str(), &device));
        device_ = std::shared_ptr<tilewise_device>(device, tilewise_device_close);
    }
    // JSON object: kind, name, and what the planner knows.
    std::string json() const { return tilewise_device_json(device_.get()); }
    // True where tensors and workspaces lie in host memory.
    bool is_host() const noexcept { return is_host_; }
    const tilewise_device* c() const noexcept { return device_.get(); }

private:
    std::shared_ptr<tilewise_device> device_;
    bool is_host_;
};

// Memory of a device, 64-byte aligned. The host cannot read a GPU's through data(); copy() can. Move-only.
class DeviceMemory {
public:
    DeviceMemory() noexcept = default;
    DeviceMemory(const Device& device, std::size_t bytes) : memory_(nullptr, Free{device}), size_(bytes) {
        void* memory = nullptr;
        detail::check(tilewise_allocate(device.c(), bytes, &memory));
        memory_.reset(static_cast<std::byte*>(memory));
    }
    std::byte* data() const noexcept { return memory_.get(); }
    std::size_t size() const noexcept { return size_; }
    // Where a call takes a workspace.
    operator std::span<std::byte>() const noexcept { return {data(), size_}; }

private:
    struct Free {
        std::optional<Device> device;
        void operator()(std::byte* memory) const noexcept { static_cast<void>(tilewise_free(device->c(), memory)); }
    };
    std::unique_ptr<std::byte, Free> memory_;
    std::size_t size_ = 0;
};

// Ordered on `stream` (null: the device's default stream); see tilewise_copy for when the memory may be touched again.
inline void copy(const Device& device, void* to, const void* from, std::size_t bytes, void* stream = nullptr) {
    detail::check(tilewise_copy(device.c(), to, from, bytes, stream));
}
inline void fill(const Device& device, void* to, std::uint8_t value, std::size_t bytes, void* stream = nullptr) {
    detail::check(tilewise_fill(device.c(), to, value, bytes, stream));
}
// Waits for all work on the stream; throws what failed, kernels included.
inline void synchronize(const Device& device, void* stream = nullptr) {
    detail::check(tilewise_synchronize(device.c(), stream));
}

// A stream of its own, ordered neither before nor after the default one. c() is what `stream` arguments take. Move-only.
class Stream {
public:
    explicit Stream(const Device& device) : device_(device) {
        detail::check(tilewise_stream_create(device_.c(), &stream_));
    }
    Stream(Stream&& other) noexcept : device_(other.device_), stream_(std::exchange(other.stream_, nullptr)) {}
    Stream& operator=(Stream&& other) noexcept {
        std::swap(device_, other.device_);
        std::swap(stream_, other.stream_);
        return *this;
    }
    ~Stream() { static_cast<void>(tilewise_stream_destroy(device_.c(), stream_)); }

    void synchronize() const { v0::synchronize(device_, stream_); }
    void* c() const noexcept { return stream_; }

private:
    Device device_;
    void* stream_ = nullptr;
};

// A point in a stream, for timing. Move-only.
class Event {
public:
    explicit Event(const Device& device) {
        tilewise_event* event = nullptr;
        detail::check(tilewise_event_create(device.c(), &event));
        event_.reset(event);
    }
    void record(void* stream = nullptr) { detail::check(tilewise_event_record(event_.get(), stream)); }
    const tilewise_event* c() const noexcept { return event_.get(); }

private:
    struct Destroy {
        void operator()(tilewise_event* event) const noexcept { tilewise_event_destroy(event); }
    };
    std::unique_ptr<tilewise_event, Destroy> event_;
};

// From one recorded point to another one of the same device; waits for `end`.
inline double seconds_between(const Event& begin, const Event& end) {
    double seconds = 0;
    detail::check(tilewise_event_elapsed(begin.c(), end.c(), &seconds));
    return seconds;
}

}  // namespace v0
}  // namespace tilewise
