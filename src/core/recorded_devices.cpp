// Devices to plan for without having them. A plan is a pure function, so these values are how the choices for every GPU are
// tested on any machine.
//
// Sources: multiprocessors, memory bandwidth and dense 16-bit rates with fp32 accumulation from the vendor's data sheets and architecture
// papers; shared memory a block from the compute capability table of the CUDA programming guide (each 1 KiB below the
// multiprocessor's); L2 as cudaGetDeviceProperties reports it; memory as nvidia-smi reports it, in MiB.
#include "core/device.hpp"

namespace tilewise {
namespace {

constexpr int64_t kKiB = int64_t{1} << 10;
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr double kGB = 1e9;
constexpr double kTera = 1e12;

DeviceInfo gpu(const char* name, const CudaInfo& cuda) {
    DeviceInfo device;
    device.kind = DeviceKind::kCuda;
    device.recorded = true;
    device.name = name;
    device.cuda = cuda;
    return device;
}

DeviceInfo cpu(const char* name, const CpuInfo& info) {
    DeviceInfo device;
    device.kind = DeviceKind::kCpu;
    device.recorded = true;
    device.name = name;
    device.cpu = info;
    return device;
}

// Compute capability, multiprocessors, shared memory a block, L2, memory, bytes/s, FLOP/s.
std::vector<RecordedDevice> gpus() {
    constexpr int32_t kHopper = 227 * kKiB, kA100 = 163 * kKiB, kConsumer = 99 * kKiB, kTuring = 64 * kKiB;
    return {
        // HBM3e. The rate is the data sheet's; under the 700 W limit 0.85 of it was measured.
        {"h200", gpu("NVIDIA H200", {90, 132, kHopper, 60 * kMiB, 143771 * kMiB, 4800 * kGB, 989.4 * kTera})},
        {"h100", gpu("NVIDIA H100 80GB HBM3", {90, 132, kHopper, 50 * kMiB, 81559 * kMiB, 3350 * kGB, 989.4 * kTera})},
        {"a100", gpu("NVIDIA A100-SXM4-80GB", {80, 108, kA100, 40 * kMiB, 81920 * kMiB, 2039 * kGB, 312 * kTera})},
        // GeForce parts multiply 16-bit matrices at half their rate when they accumulate in fp32; that half is what counts here.
        {"rtx5090",
         gpu("NVIDIA GeForce RTX 5090", {120, 170, kConsumer, 96 * kMiB, 32607 * kMiB, 1792 * kGB, 209.5 * kTera})},
        {"rtx4090",
         gpu("NVIDIA GeForce RTX 4090", {89, 128, kConsumer, 72 * kMiB, 24564 * kMiB, 1008 * kGB, 165.2 * kTera})},
        {"rtx3090", gpu("NVIDIA GeForce RTX 3090", {86, 82, kConsumer, 6 * kMiB, 24576 * kMiB, 936 * kGB, 71 * kTera})},
        // Turing has no bf16: the rate is that of fp16.
        {"t4", gpu("Tesla T4", {75, 40, kTuring, 4 * kMiB, 15360 * kMiB, 320 * kGB, 65 * kTera})},
    };
}

// Cores of one socket, L1 data and L2 of one core.
std::vector<RecordedDevice> cpus() {
    return {
        // Sapphire Rapids
        {"cpu-avx512bf16",
         cpu("Intel Xeon Platinum 8480+", {Isa::kAvx512Bf16, 56, 48 * kKiB, 2048 * kKiB,
                                           "avx f16c fma avx2 avx512f avx512dq avx512bw avx512vl avx512bf16"})},
        // Skylake server: AVX-512 before bf16
        {"cpu-avx512", cpu("Intel Xeon Gold 6148", {Isa::kAvx512, 20, 32 * kKiB, 1024 * kKiB,
                                                    "avx f16c fma avx2 avx512f avx512dq avx512bw avx512vl"})},
        // Zen 3
        {"cpu-avx2", cpu("AMD Ryzen 9 5950X", {Isa::kAvx2, 16, 32 * kKiB, 512 * kKiB, "avx f16c fma avx2"})},
        // Neoverse N1, a cloud machine of 8 cores: no instruction set that this library has vector kernels for
        {"cpu-scalar", cpu("Arm Neoverse-N1", {Isa::kScalar, 8, 64 * kKiB, 1024 * kKiB, ""})},
    };
}

}  // namespace

const std::vector<RecordedDevice>& recorded_devices() {
    static const std::vector<RecordedDevice> devices = [] {
        std::vector<RecordedDevice> all = gpus();
        for (RecordedDevice& device : cpus()) all.push_back(std::move(device));
        return all;
    }();
    return devices;
}

}  // namespace tilewise
