// Functions of the driver library, found at run time: the library links the CUDA runtime statically and no driver at all, so
// that it loads and runs on a machine without one.
#pragma once

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <string>

#include "core/status.hpp"

namespace tilewise::cuda {

// The driver's function `symbol` as CUDA version `version` (1000 * major + 10 * minor) declares it; the version is part of its
// binary interface. A failure says what is missing.
Status driver_function(const char* symbol, unsigned version, void** function);

// What the device guard needs.
struct ContextFunctions {
    PFN_cuCtxGetCurrent_v4000 get_current = nullptr;
    PFN_cuCtxSetCurrent_v4000 set_current = nullptr;
    PFN_cuCtxGetDevice_v2000 get_device = nullptr;
};
// Found once, at the first use; the status is that of the search.
struct ContextLookup {
    ContextFunctions functions;
    Status status;
};
const ContextLookup& context_functions();

}  // namespace tilewise::cuda
