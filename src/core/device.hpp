// What the planner knows of a device: plain numbers, so that plans for every GPU are tested on a machine without one.
// The CPU is detected here; GPUs are detected by the CUDA backend; the recorded devices are values read off real machines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilewise {

enum class DeviceKind : uint8_t { kCpu, kCuda };

enum class Isa : uint8_t { kScalar, kAvx2, kAvx512, kAvx512Bf16 };
const char* name_of(Isa isa);

struct CpuInfo {
    Isa isa = Isa::kScalar;  // the best instruction set of the kernels that this CPU (and its operating system) runs
    int32_t num_cores = 1;   // that this process may use
    int64_t l1d_bytes = 32 << 10;
    int64_t l2_bytes = 1 << 20;
    std::string features;  // for people: "avx2 fma f16c avx512f ..."
    bool operator==(const CpuInfo&) const = default;
};

struct CudaInfo {
    int32_t compute_capability = 0;  // 10 * major + minor: 90, 80, 120
    int32_t num_multiprocessors = 0;
    int32_t shared_memory_per_block = 0;  // bytes, opt-in maximum
    int64_t l2_bytes = 0;
    int64_t memory_bytes = 0;
    double memory_bytes_per_second = 0;
    double bf16_flops_per_second = 0;  // dense, with fp32 accumulation
    bool operator==(const CudaInfo&) const = default;
};

struct DeviceInfo {
    DeviceKind kind = DeviceKind::kCpu;
    int32_t index = 0;      // among the devices of its kind
    bool recorded = false;  // a description only: plans are made for it, nothing is launched on it
    std::string name;       // "NVIDIA H200", "Intel(R) Xeon(R) ..."
    CpuInfo cpu;
    CudaInfo cuda;
    bool operator==(const DeviceInfo&) const = default;
};

// This machine's CPU, as the process sees it.
DeviceInfo detect_cpu();
// Recorded devices and their short names: "h200", "a100", "rtx4090", "rtx3090", "rtx5090", "t4", "cpu-avx512bf16", "cpu-avx2", ...
struct RecordedDevice {
    const char* key;
    DeviceInfo info;
};
const std::vector<RecordedDevice>& recorded_devices();
// One line for people.
std::string to_string(const DeviceInfo& device);
// A JSON object: kind, index, recorded, name, and the fields of `cpu` or `cuda`.
std::string to_json(const DeviceInfo& device);

}  // namespace tilewise
