// What a GPU can do a second, where the driver does not say it. The planner compares kernels by these numbers: a value that is
// off by a fifth changes a choice only between kernels that are about as fast.
#include <algorithm>
#include <iterator>
#include <string_view>

#include "cuda/common/device_query.hpp"

namespace tilewise::cuda {
namespace {

// Of one generation: dense 16-bit FLOPs with fp32 accumulation that a multiprocessor does in a clock (vendor's data sheets, divided by
// multiprocessors and boost clock), and the memory bandwidth of a typical part.
struct Generation {
    int32_t compute_capability;
    double flops_per_clock;
    double consumer_flops_per_clock;  // GeForce parts accumulate in fp32 at half the rate
    double memory_bytes_per_second;
};
constexpr Generation kGenerations[] = {
    {75, 1024, 512, 448e9},   {80, 2048, 2048, 1555e9}, {86, 1024, 512, 696e9},    {87, 1024, 1024, 204e9},
    {89, 1024, 512, 864e9},   {90, 4096, 4096, 3350e9}, {100, 8192, 8192, 8000e9}, {103, 8192, 8192, 8000e9},
    {110, 8192, 8192, 273e9}, {120, 1024, 512, 1344e9}, {121, 1024, 1024, 273e9},
};
constexpr double kTypicalClock = 1.5e9;

// The newest generation that is not newer than the device; the oldest for what is older.
const Generation& generation_of(int32_t compute_capability) {
    const auto* newer =
        std::upper_bound(std::begin(kGenerations), std::end(kGenerations), compute_capability,
                         [](int32_t wanted, const Generation& g) { return wanted < g.compute_capability; });
    return newer == std::begin(kGenerations) ? *newer : *std::prev(newer);
}

const CudaInfo* recorded_as(const std::string& name) {
    for (const RecordedDevice& recorded : recorded_devices())
        if (recorded.info.kind == DeviceKind::kCuda && recorded.info.name == name) return &recorded.info.cuda;
    return nullptr;
}

}  // namespace

void add_rates(const Clocks& clocks, DeviceInfo* device) {
    CudaInfo& cuda = device->cuda;
    const Generation& generation = generation_of(cuda.compute_capability);
    const CudaInfo* recorded = recorded_as(device->name);

    constexpr double kTransfersPerClock = 2, kBitsPerByte = 8;
    const double told = clocks.memory * kTransfersPerClock * clocks.memory_bus_bits / kBitsPerByte;
    cuda.memory_bytes_per_second = told > 0              ? told
                                   : recorded != nullptr ? recorded->memory_bytes_per_second
                                                         : generation.memory_bytes_per_second;

    const bool is_consumer = device->name.find("GeForce") != std::string::npos;
    const double per_clock = is_consumer ? generation.consumer_flops_per_clock : generation.flops_per_clock;
    const double clock = clocks.multiprocessor > 0 ? clocks.multiprocessor : kTypicalClock;
    cuda.bf16_flops_per_second =
        recorded != nullptr ? recorded->bf16_flops_per_second : cuda.num_multiprocessors * per_clock * clock;
}

}  // namespace tilewise::cuda
