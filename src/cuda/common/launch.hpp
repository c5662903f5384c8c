// The one way in which the CUDA backend starts a kernel.
#pragma once

#include <cstdint>

#include "core/plan.hpp"
#include "core/status.hpp"
#include "cuda/common/check.hpp"

namespace tilewise::cuda {

struct LaunchShape {
    int64_t num_blocks = 0;
    int32_t num_threads = 0;
    int32_t shared_bytes = 0;
    int32_t cluster_blocks =
        1;  // neighbouring blocks that run together, from compute capability 9.0 on; divides num_blocks
};

// `kernel`: address of a __global__ function that takes one struct by value, and `params` a value of that struct. num_blocks 0:
// nothing is launched, ok. More than 2^31-1 blocks: refused. Makes arguments.device current, raises the kernel's limit of dynamic
// shared memory where it needs that, launches on arguments.stream, checks every code, and restores the caller's device.
// Allocates nothing and waits for nothing: may be called while the stream is captured in a graph.
Status launch_kernel(const char* name, const void* kernel, const LaunchShape& shape, const void* params,
                     const Arguments& arguments);

}  // namespace tilewise::cuda
