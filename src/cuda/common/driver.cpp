// Looks driver functions up through the runtime, which has the driver library open already.
#include "cuda/common/driver.hpp"

#include <fmt/format.h>

#include "cuda/common/check.hpp"

namespace tilewise::cuda {
namespace {

cudaError_t look_up(const char* symbol, unsigned version, void** function, cudaDriverEntryPointQueryResult* result) {
#if CUDART_VERSION >= 12050
    return cudaGetDriverEntryPointByVersion(symbol, function, version, cudaEnableDefault, result);
#else
    // The version is that of the toolkit, which for the functions used here has the same interface.
    static_cast<void>(version);
    return cudaGetDriverEntryPoint(symbol, function, cudaEnableDefault, result);
#endif
}

template <class Function> Status find(const char* symbol, unsigned version, Function* function) {
    void* found = nullptr;
    if (Status status = driver_function(symbol, version, &found); !status.ok()) return status;
    *function = reinterpret_cast<Function>(found);
    return {};
}

}  // namespace

Status driver_function(const char* symbol, unsigned version, void** function) {
    *function = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    if (Status status = check(look_up(symbol, version, function, &result), symbol); !status.ok()) {
        forget_last_error();
        return status;
    }
    if (result != cudaDriverEntryPointSuccess || *function == nullptr)
        return {StatusCode::kDeviceError,
                fmt::format("{}: this driver lacks it; update to a driver of CUDA {}.{} or later", symbol,
                            version / 1000, version % 1000 / 10)};
    return {};
}

const ContextLookup& context_functions() {
    static const ContextLookup lookup = [] {
        ContextLookup found;
        ContextFunctions& f = found.functions;
        found.status = find("cuCtxGetCurrent", 4000, &f.get_current);
        if (found.status.ok()) found.status = find("cuCtxSetCurrent", 4000, &f.set_current);
        if (found.status.ok()) found.status = find("cuCtxGetDevice", 2000, &f.get_device);
        return found;
    }();
    return lookup;
}

}  // namespace tilewise::cuda
