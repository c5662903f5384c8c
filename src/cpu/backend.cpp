// Turns the lines of kernels.inc into registry rows. Nothing else of the backend is visible to core and api: deleting this folder and
// the line that calls register_cpu_backend leaves a tree that builds.
#include "core/validate.hpp"
#include "cpu/append.hpp"
#include "cpu/combine.hpp"
#include "cpu/reference.hpp"
#include "cpu/tiled.hpp"

namespace tilewise {

namespace {

KernelRow cpu_row(std::string name, Op op, std::vector<DType> dtypes, Isa isa) {
    KernelRow row;
    row.name = std::move(name);
    row.device = DeviceKind::kCpu;
    row.op = op;
    row.dtypes = std::move(dtypes);
    row.max_head_dim = kMaxHeadDim;
    row.max_head_dim_v = kMaxHeadDimV;
    row.features = "all";
    row.isa = static_cast<int32_t>(isa);
    return row;
}

KernelRow tiled_row(Op op, DType dtype, Isa isa) {
    const std::string name = std::string("cpu_tiled_") + name_of(op) + "_" + name_of(dtype) + "_" + name_of(isa);
    KernelRow row = cpu_row(name, op, {dtype}, isa);
    const bool forward = op == Op::kForward;
    row.layout = forward ? cpu::layout_tiled_forward : cpu::layout_tiled_backward;
    row.cost = cpu::cost_tiled;
    row.launch = forward ? cpu::launch_tiled_forward : cpu::launch_tiled_backward;
    return row;
}

}  // namespace

void register_cpu_backend(Registry& registry) {
    using namespace cpu;
#define TILEWISE_CPU_ROW(name_, op_, refuse_, layout_, cost_, launch_)                          \
    {                                                                                           \
        const std::vector<DType> every = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}; \
        KernelRow row = cpu_row("cpu_" #name_, Op::op_, every, Isa::kScalar);                   \
        row.refuse = refuse_;                                                                   \
        row.layout = layout_;                                                                   \
        row.cost = cost_;                                                                       \
        row.launch = launch_;                                                                   \
        registry.add(std::move(row));                                                           \
    }
#define TILEWISE_CPU_TILED(op_, dtype_, isa_) registry.add(tiled_row(Op::op_, DType::dtype_, Isa::isa_));
#include "cpu/kernels.inc"
#undef TILEWISE_CPU_ROW
#undef TILEWISE_CPU_TILED
}

}  // namespace tilewise
