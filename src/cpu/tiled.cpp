// What the rows of the tiled backend have in common; see tiled.hpp.
#include "cpu/tiled.hpp"

#include <algorithm>

#include "core/cost.hpp"

namespace tilewise::cpu {

namespace {

// The rate of the avx512_bf16 kernels, relative to what the instruction set promises. Products of bf16 pairs have twice
// the rate of fp32 FMA on Zen 4 and 5, by the vendor's tables, and half of it on the Sapphire Rapids class Xeon that was
// measured (105 against 210 GFLOP/s a core), where widening bf16 to fp32 is the faster way. The backward pass multiplies
// in fp32 everywhere.
double rate_of_pairs(const Step& step, const DeviceInfo& device) {
    if (step.problem.op == Op::kBackward) return 0.5;
    return device.name.starts_with("AMD") ? 1.0 : 0.25;
}

}  // namespace

// The sum of computing and moving, not the larger: where memory decides, the better instruction set still wins.
double cost_tiled(const Step& step, const DeviceInfo& device) {
    const Isa isa = static_cast<Isa>(step.row->isa);
    const Work work = work_of(step.problem, step.sizes);
    Rates rates = cpu_rates(isa, step.problem[Arg::kQ].dtype, step.num_threads);
    if (isa == Isa::kAvx512Bf16) rates.flops_per_second *= rate_of_pairs(step, device);
    return 1e-6 + std::max(work.flops, 1.0) / rates.flops_per_second + work.bytes / rates.bytes_per_second;
}

}  // namespace tilewise::cpu
