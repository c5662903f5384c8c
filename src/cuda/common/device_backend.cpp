// The CUDA backend's side of core/device_backend.hpp. Nothing here runs before the first question about a CUDA device: loading the
// library on a machine without a driver costs nothing, and a process may fork before it uses one.
#include "core/device_backend.hpp"

#include "cuda/common/device_query.hpp"
#include "cuda/common/memory.hpp"

namespace tilewise {

const DeviceBackend& cuda_device_backend() {
    static const DeviceBackend backend{cuda::find_devices, cuda::current_device, cuda::memory_functions(),
                                       cuda::stream_functions(), cuda::event_functions()};
    return backend;
}

}  // namespace tilewise
