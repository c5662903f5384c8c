// Messages of CUDA errors. The runtime's own description says what happened; the table adds what a user can do about it.
#include "cuda/common/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tilewise::cuda {
namespace {

struct Advice {
    cudaError_t error;
    const char* text;
};
constexpr Advice kAdvice[] = {
    {cudaErrorInsufficientDriver, "update the NVIDIA driver"},
    {cudaErrorNoDevice, "no GPU is visible; CUDA_VISIBLE_DEVICES may hide it"},
    {cudaErrorNoKernelImageForDevice,
     "this build holds no code for this GPU; add its architecture to TILEWISE_CUDA_ARCHS"},
    {cudaErrorUnsupportedPtxVersion, "the driver is too old to compile this build's PTX; update the NVIDIA driver"},
    {cudaErrorJitCompilerNotFound, "the driver's PTX compiler is not installed; install the whole NVIDIA driver"},
    {cudaErrorInvalidResourceHandle, "is the stream one of this device?"},
    {cudaErrorIllegalAddress, "a kernel reached outside of memory; the process must end before the GPU is used again"},
    {cudaErrorInitializationError, "in a process that forked after its first use of CUDA, start a fresh one instead"},
};

}  // namespace

Status check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return {};
    const auto* advice =
        std::find_if(std::begin(kAdvice), std::end(kAdvice), [&](const Advice& a) { return a.error == error; });
    const char* hint = advice != std::end(kAdvice) ? advice->text : "";
    return {StatusCode::kDeviceError, fmt::format("{}: {} ({}){}{}", what, cudaGetErrorString(error),
                                                  cudaGetErrorName(error), *hint != '\0' ? "; " : "", hint)};
}

void forget_last_error() { static_cast<void>(cudaGetLastError()); }

}  // namespace tilewise::cuda
