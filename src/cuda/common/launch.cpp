// Launches a kernel with the stream, the device and the checks of launch.hpp.
#include "cuda/common/launch.hpp"

#include <fmt/format.h>

#include <limits>

#include "cuda/common/device_guard.hpp"
#include "cuda/common/relaxed_capture.hpp"

namespace tilewise::cuda {
namespace {

constexpr int64_t kMaxBlocks = std::numeric_limits<int32_t>::max();  // gridDim.x
constexpr int32_t kDefaultSharedBytes = 48 << 10;                    // more must be asked for, kernel by kernel

Status check_shape(const char* name, const LaunchShape& shape) {
    if (shape.num_blocks > kMaxBlocks)
        return Status::unsupported(
            fmt::format("{}: this call takes {} blocks; a launch has at most {}: split the batch over several calls",
                        name, shape.num_blocks, kMaxBlocks));
    const bool has_clusters = shape.cluster_blocks >= 1 && shape.num_blocks % shape.cluster_blocks == 0;
    if (shape.num_blocks < 0 || shape.num_threads < 1 || shape.shared_bytes < 0 || !has_clusters)
        return {StatusCode::kInternal,
                fmt::format("{}: {} blocks of {} threads with {} bytes, {} a cluster, cannot be launched", name,
                            shape.num_blocks, shape.num_threads, shape.shared_bytes, shape.cluster_blocks)};
    return {};
}

cudaError_t raise_shared_limit(const void* kernel, int32_t bytes) {
    if (bytes <= kDefaultSharedBytes) return cudaSuccess;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

cudaError_t launch_shape(const void* kernel, const LaunchShape& shape, const void* params, void* stream) {
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(shape.cluster_blocks);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(shape.num_blocks));
    config.blockDim = dim3(static_cast<unsigned>(shape.num_threads));
    config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &cluster;
    config.numAttrs = shape.cluster_blocks > 1 ? 1 : 0;  // GPUs before 9.0 know no cluster, not even of one block
    void* values[] = {const_cast<void*>(params)};
    return cudaLaunchKernelExC(&config, kernel, values);
}

}  // namespace

Status launch_kernel(const char* name, const void* kernel, const LaunchShape& shape, const void* params,
                     const Arguments& arguments) {
    if (shape.num_blocks == 0) return {};
    if (Status status = check_shape(name, shape); !status.ok()) return status;
    const DeviceGuard guard(arguments.device);
    if (!guard.status().ok()) return guard.status();
    const RelaxedCapture relaxed;

    cudaError_t error = raise_shared_limit(kernel, shape.shared_bytes);
    const bool is_prepared = error == cudaSuccess;
    if (is_prepared) error = launch_shape(kernel, shape, params, arguments.stream);
    if (error == cudaSuccess) return {};
    forget_last_error();
    return check(error,
                 fmt::format("{}: {} with {} bytes of shared memory a block failed on cuda:{}", name,
                             is_prepared ? "the launch" : "its preparation", shape.shared_bytes, arguments.device)
                     .c_str());
}

}  // namespace tilewise::cuda
