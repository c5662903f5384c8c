// Asks the runtime for every device's attributes. No driver, a driver that is too old and no GPU are told apart, because each asks
// for something else to be done.
#include "cuda/common/device_query.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "cuda/common/check.hpp"
#include "cuda/common/driver.hpp"

namespace tilewise::cuda {
namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// What "insufficient driver" and "no device" mean on this machine.
Status explained(cudaError_t error) {
    int driver = 0, runtime = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
    forget_last_error();
    if (error == cudaErrorInsufficientDriver && driver == 0)
        return Status::unsupported(
            "no NVIDIA driver was found; install one, and start a container with access to the "
            "GPUs (docker: --gpus all)");
    if (error == cudaErrorInsufficientDriver)
        return Status::unsupported(
            fmt::format("the NVIDIA driver is too old: it runs programs up to CUDA {}, and this build is of CUDA {}; "
                        "update the driver",
                        version_text(driver), version_text(runtime)));
    if (error == cudaErrorNoDevice)
        return Status::unsupported(
            "the NVIDIA driver shows no GPU; CUDA_VISIBLE_DEVICES may hide them, or a container "
            "was started without access to them (docker: --gpus all)");
    return check(error, "the CUDA driver does not answer");
}

// 0 where the driver does not know the attribute.
int attribute(cudaDeviceAttr name, int device) {
    int value = 0;
    if (cudaDeviceGetAttribute(&value, name, device) == cudaSuccess) return value;
    forget_last_error();
    return 0;
}

Status describe(int index, DeviceInfo* device) {
    cudaDeviceProp properties{};
    if (Status status = check(cudaGetDeviceProperties(&properties, index),
                              fmt::format("cuda:{}: its properties cannot be read", index).c_str());
        !status.ok())
        return status;
    device->kind = DeviceKind::kCuda;
    device->index = index;
    device->name = properties.name;
    CudaInfo& cuda = device->cuda;
    cuda.compute_capability = 10 * properties.major + properties.minor;
    cuda.num_multiprocessors = properties.multiProcessorCount;
    cuda.shared_memory_per_block = static_cast<int32_t>(properties.sharedMemPerBlockOptin);
    cuda.l2_bytes = properties.l2CacheSize;
    cuda.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    constexpr double kKilohertz = 1e3;
    add_rates({kKilohertz * attribute(cudaDevAttrMemoryClockRate, index),
               kKilohertz * attribute(cudaDevAttrClockRate, index), attribute(cudaDevAttrGlobalMemoryBusWidth, index)},
              device);
    return {};
}

}  // namespace

FoundDevices find_devices() {
    FoundDevices found;
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        found.status = explained(error != cudaSuccess ? error : cudaErrorNoDevice);
        return found;
    }
    for (int index = 0; index < count; ++index) {
        DeviceInfo device;
        found.status = describe(index, &device);
        if (!found.status.ok()) {
            forget_last_error();
            found.devices.clear();
            return found;
        }
        found.devices.push_back(std::move(device));
    }
    return found;
}

int32_t current_device() {
    const ContextLookup& lookup = context_functions();
    CUcontext context = nullptr;
    CUdevice device = 0;
    const bool has_one = lookup.status.ok() && lookup.functions.get_current(&context) == CUDA_SUCCESS &&
                         context != nullptr && lookup.functions.get_device(&device) == CUDA_SUCCESS;
    return has_one ? device : 0;
}

}  // namespace tilewise::cuda
