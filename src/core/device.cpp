// Names and one-line descriptions of devices.
#include "core/device.hpp"

#include <fmt/format.h>

namespace tilewise {
namespace {

// "48 KiB", "2 MiB", "141 GiB": in the largest unit that leaves at least 1.
std::string binary_size(int64_t bytes) {
    if (bytes >= (int64_t{1} << 30)) return fmt::format("{:.3g} GiB", static_cast<double>(bytes) / (1 << 30));
    if (bytes >= (int64_t{1} << 20)) return fmt::format("{:.3g} MiB", static_cast<double>(bytes) / (1 << 20));
    return fmt::format("{} KiB", bytes >> 10);
}

std::string to_string(const CpuInfo& cpu) {
    return fmt::format("{} core{}, {}, L1d {}, L2 {}", cpu.num_cores, cpu.num_cores == 1 ? "" : "s", name_of(cpu.isa),
                       binary_size(cpu.l1d_bytes), binary_size(cpu.l2_bytes));
}

std::string to_string(const CudaInfo& cuda) {
    return fmt::format(
        "compute capability {}.{}, {} multiprocessors, {} shared memory a block, L2 {}, {} at {:.3g} TB/s",
        cuda.compute_capability / 10, cuda.compute_capability % 10, cuda.num_multiprocessors,
        binary_size(cuda.shared_memory_per_block), binary_size(cuda.l2_bytes), binary_size(cuda.memory_bytes),
        cuda.memory_bytes_per_second * 1e-12);
}

}  // namespace

const char* name_of(Isa isa) {
    switch (isa) {
    case Isa::kScalar: return "scalar";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Bf16: return "avx512_bf16";
    }
    return "unknown";
}

std::string to_string(const DeviceInfo& device) {
    const std::string facts = device.kind == DeviceKind::kCpu ? to_string(device.cpu) : to_string(device.cuda);
    return fmt::format("{}{}: {}", device.name, device.recorded ? " (recorded)" : "", facts);
}

}  // namespace tilewise
