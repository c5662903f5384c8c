// Thin forms of the runtime's calls: each makes its device current for the time of the call and turns the code into a sentence.
#include "cuda/common/memory.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "cuda/common/check.hpp"
#include "cuda/common/device_guard.hpp"
#include "cuda/common/relaxed_capture.hpp"

namespace tilewise::cuda {
namespace {

// `call` returns a cudaError_t.
template <class Call> Status on_device(int32_t device, const char* what, Call&& call) {
    const DeviceGuard guard(device);
    if (!guard.status().ok()) return guard.status();
    const cudaError_t error = call();
    if (error == cudaSuccess) return {};
    forget_last_error();
    return check(error, fmt::format("{} on cuda:{}", what, device).c_str());
}

cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }

Status allocate(int32_t device, int64_t bytes, void** memory) {
    *memory = nullptr;
    const DeviceGuard guard(device);
    if (!guard.status().ok()) return guard.status();
    const cudaError_t error = cudaMalloc(memory, static_cast<size_t>(bytes));
    if (error == cudaSuccess) return {};
    forget_last_error();
    *memory = nullptr;
    if (error != cudaErrorMemoryAllocation) return check(error, fmt::format("allocating on cuda:{}", device).c_str());
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) forget_last_error();
    return {StatusCode::kOutOfMemory,
            fmt::format("bytes: cuda:{} cannot give {} bytes; {} of its {} are free", device, bytes, free, total)};
}

Status release(int32_t device, void* memory) {
    return on_device(device, "memory: cannot be freed", [&] { return cudaFree(memory); });
}

Status copy(int32_t device, void* to, const void* from, int64_t bytes, void* stream) {
    return on_device(device, "copying", [&] {
        return cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_of(stream));
    });
}

Status fill(int32_t device, void* to, uint8_t value, int64_t bytes, void* stream) {
    return on_device(device, "filling",
                     [&] { return cudaMemsetAsync(to, value, static_cast<size_t>(bytes), stream_of(stream)); });
}

// A query, no operation of a stream: it neither waits nor is captured.
cudaError_t locate_one(int32_t device, const void* pointer, PointerPlace* place) {
    cudaPointerAttributes attributes{};
    const cudaError_t error = cudaPointerGetAttributes(&attributes, pointer);
    if (error != cudaSuccess) return error;
    using Kind = PointerPlace::Kind;
    switch (attributes.type) {
    case cudaMemoryTypeDevice:
        *place = {attributes.device == device ? Kind::kUsable : Kind::kOtherDevice, attributes.device};
        break;
    case cudaMemoryTypeManaged: *place = {Kind::kUsable, device}; break;
    // Page-locked memory is usable under the address that the device has for it, on all systems of today the same.
    case cudaMemoryTypeHost:
        *place = {attributes.devicePointer == pointer ? Kind::kUsable : Kind::kHost, device};
        break;
    default: *place = {Kind::kHost, device}; break;
    }
    return cudaSuccess;
}

Status locate(int32_t device, std::span<const void* const> pointers, std::span<PointerPlace> places) {
    return on_device(device, "asking where the pointers of a launch lie", [&] {
        const RelaxedCapture relaxed;
        for (size_t i = 0; i < pointers.size(); ++i)
            if (const cudaError_t error = locate_one(device, pointers[i], &places[i]); error != cudaSuccess)
                return error;
        return cudaSuccess;
    });
}

Status create_stream(int32_t device, void** stream) {
    cudaStream_t made = nullptr;
    Status status =
        on_device(device, "making a stream", [&] { return cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking); });
    *stream = made;
    return status;
}

Status destroy_stream(int32_t device, void* stream) {
    if (stream == nullptr) return {};
    return on_device(device, "destroying a stream", [&] { return cudaStreamDestroy(stream_of(stream)); });
}

Status synchronize(int32_t device, void* stream) {
    return on_device(device, "work failed", [&] { return cudaStreamSynchronize(stream_of(stream)); });
}

Status create_event(int32_t device, void** event) {
    cudaEvent_t made = nullptr;
    Status status = on_device(device, "making an event", [&] { return cudaEventCreate(&made); });
    *event = made;
    return status;
}

Status destroy_event(int32_t device, void* event) {
    return on_device(device, "destroying an event", [&] { return cudaEventDestroy(event_of(event)); });
}

Status record_event(int32_t device, void* event, void* stream) {
    return on_device(device, "recording an event", [&] { return cudaEventRecord(event_of(event), stream_of(stream)); });
}

Status elapsed(int32_t device, void* begin, void* end, double* seconds) {
    constexpr double kMilliseconds = 1e-3;
    float milliseconds = 0;
    Status status = on_device(device, "timing between events", [&] {
        const cudaError_t error = cudaEventSynchronize(event_of(end));
        return error != cudaSuccess ? error : cudaEventElapsedTime(&milliseconds, event_of(begin), event_of(end));
    });
    *seconds = kMilliseconds * static_cast<double>(milliseconds);
    return status;
}

}  // namespace

MemoryFunctions memory_functions() { return {allocate, release, copy, fill, locate}; }
StreamFunctions stream_functions() { return {create_stream, destroy_stream, synchronize}; }
EventFunctions event_functions() { return {create_event, destroy_event, record_event, elapsed}; }

}  // namespace tilewise::cuda
