// Turns what the CUDA runtime and the driver return into a Status. Every return code of the backend passes through here.
#pragma once

#include <cuda_runtime_api.h>

#include "core/status.hpp"

namespace tilewise::cuda {

// ok for cudaSuccess; otherwise kDeviceError with `what`, the error's name and description, and where one is known, what to do.
Status check(cudaError_t error, const char* what);

// Forgets a failed call's code, so that a later call that asks for the last error does not report this one again.
void forget_last_error();

}  // namespace tilewise::cuda
