// Makes a device current for a scope and gives the thread back exactly the context that it had.
//
// The context is restored, not the device's number: the caller may use another copy of the CUDA runtime, or contexts of its own, and a thread
// that had none must not end up holding one on device 0. A context of the wanted device that is current already is used as it is,
// since the caller's stream belongs to it.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "core/status.hpp"

namespace tilewise::cuda {

class DeviceGuard {
public:
    explicit DeviceGuard(int32_t device);
    ~DeviceGuard();
    DeviceGuard(const DeviceGuard&) = delete;
    DeviceGuard& operator=(const DeviceGuard&) = delete;

    // Not ok: the device could not be made current, and nothing changed.
    const Status& status() const { return status_; }

private:
    CUcontext previous_ = nullptr;
    bool changed_ = false;
    Status status_;
};

}  // namespace tilewise::cuda
