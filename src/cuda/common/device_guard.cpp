// The guard of device_guard.hpp: two look-ups of the driver where the device is current already.
#include "cuda/common/device_guard.hpp"

#include <fmt/format.h>

#include "cuda/common/check.hpp"
#include "cuda/common/driver.hpp"

namespace tilewise::cuda {

DeviceGuard::DeviceGuard(int32_t device) {
    const ContextLookup& lookup = context_functions();
    if (!lookup.status.ok()) {
        status_ = lookup.status;
        return;
    }
    const ContextFunctions& driver = lookup.functions;
    // Before the driver was initialized there is no context, which is what the failure means.
    if (driver.get_current(&previous_) != CUDA_SUCCESS) previous_ = nullptr;
    CUdevice current = -1;
    if (previous_ != nullptr && driver.get_device(&current) == CUDA_SUCCESS && current == device) return;
    const cudaError_t error = cudaSetDevice(device);
    if (error != cudaSuccess) {
        forget_last_error();
        status_ = check(error, fmt::format("device: cuda:{} cannot be used", device).c_str());
        return;
    }
    changed_ = true;
}

DeviceGuard::~DeviceGuard() {
    if (changed_) static_cast<void>(context_functions().functions.set_current(previous_));
}

}  // namespace tilewise::cuda
