// While a thread captures a stream, the driver refuses calls that could be unsafe in a capture, among them what loads a kernel at
// its first use. Nothing of ours waits for the captured stream or is left out of the graph, so the thread is put into
// the relaxed mode for the time of a launch; outside of a capture the mode has no effect.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/common/check.hpp"

namespace tilewise::cuda {

class RelaxedCapture {
public:
    RelaxedCapture() { exchange(); }
    ~RelaxedCapture() { exchange(); }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

private:
    // A failure leaves the mode as it was, and what needed the relaxed one reports it.
    void exchange() {
        if (cudaThreadExchangeStreamCaptureMode(&mode_) != cudaSuccess) forget_last_error();
    }

    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace tilewise::cuda
