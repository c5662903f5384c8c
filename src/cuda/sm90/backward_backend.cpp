// Plans and launches the backward of compute capability 9.0 in one pass; the kernels are in bwd.cuh, their list in kernels.inc. A call is a
// prologue (delta, lse, zeros), the tiles, and an epilogue (f32 sums of dQ -> grad_q).
#include "cuda/sm90/backward_backend.hpp"

#include <algorithm>
#include <vector>

#include "core/validate.hpp"
#include "core/view.hpp"
#include "core/workspace.hpp"
#include "cuda/common/device_guard.hpp"
#include "cuda/common/launch.hpp"
#include "cuda/sm90/bwd_parts_backend.hpp"
#include "cuda/sm90/bwd_traits.hpp"

namespace tilewise::cuda::sm90 {

namespace {

using BackwardKernel = TileKernel<BackwardShape>;

const BackwardKernel& kernel_of(const KernelRow& row) { return *static_cast<const BackwardKernel*>(row.kernel); }
BulkBackwardShape bulk_shape_of(const BackwardKernel& kernel) {
    return {kernel.shape.tile_m, kBackwardKeys, panels_of(kernel.shape.head_dim), kernel.has_modifiers};
}

// Of the tensor pipe's rate.
constexpr double kReached = 0.55;
constexpr double kModifiersReached = 0.25;

std::string refuse(const KernelRow& row, const Problem& problem, const DeviceInfo& device) {
    if (std::string reason = bulk_refusal(problem, device); !reason.empty()) return reason;
    return tile_kernel_refusal(kernel_of(row), problem, device);
}

void layout(Step& step, const DeviceInfo&) {
    const BackwardShape& shape = kernel_of(*step.row).shape;
    step.tiling = {shape.tile_m, kBackwardKeys, shape.q_stages};
    step.tiling.heads_per_section = backward_section_of(step);
    step.num_splits = 1;
    WorkspaceLayout layout(step.workspace_base);
    add_row_blocks(layout, step, shape.tile_m, panels_of(shape.head_dim));
    step.workspace = layout.take_blocks();
}

double cost(const Step& step, const DeviceInfo& device) {
    const auto& kernel = kernel_of(*step.row);
    const auto& shape = kernel.shape;
    BackwardEffort effort;
    effort.columns = 3 * shape.head_dim + 2 * shape.head_dim_v;
    effort.reached = kernel.has_modifiers ? kModifiersReached : kReached;
    effort.filled = static_cast<double>(blocks_of(key_tile_map(step, kBackwardKeys))) / device.cuda.num_multiprocessors;
    return backward_seconds(step, device, effort);
}

Status launch_epilogue(const BulkBackwardParams& params, const Step& step, const Arguments& arguments) {
    BulkEpilogueParams epilogue;
    epilogue.view = params.base.view;
    epilogue.grad_q = params.base.grad.q;
    epilogue.rows = params.rows;
    epilogue.factor = params.base.view.score.softmax_scale;
    const int32_t tile_m = params.rows.tile_m, panels = panels_of(kernel_of(*step.row).shape.head_dim);
    const LaunchShape shape = {params.rows.num_tiles * step.sizes.num_heads_q, 128 * panels,
                               bulk_epilogue_bytes(tile_m, panels)};
    return launch_kernel("sm90_bwd_epilogue", bulk_epilogue_entry(step.problem[Arg::kQ].dtype, tile_m), shape,
                         &epilogue, arguments);
}

Status launch(const Step& step, const Arguments& arguments) {
    const BackwardKernel& kernel = kernel_of(*step.row);
    const BulkBackwardShape shape = bulk_shape_of(kernel);
    const DeviceGuard guard(arguments.device);  // the encoder of maps wants a current context
    if (!guard.status().ok()) return guard.status();
    BulkBackwardParams params{};
    Status status = fill_backward_params(step, arguments, shape, &params);
    if (status.ok()) status = launch_bulk_prologue(params, shape, step, arguments);
    const LaunchShape launch_shape = {blocks_of(params.base.tiles), kernel.num_threads, kernel.shared_bytes};
    if (status.ok()) status = launch_kernel(kernel.name, kernel.entry(), launch_shape, &params, arguments);
    return status.ok() ? launch_epilogue(params, step, arguments) : status;
}

}  // namespace

#define TILEWISE_SM90_FORWARD(name, ...)
#define TILEWISE_SM90_TWOPASS(name, ...)
#define TILEWISE_SM90_BACKWARD(name, ...) const void* name##_entry();
#include "cuda/sm90/kernels.inc"
#undef TILEWISE_SM90_BACKWARD

void register_backward_rows(Registry& registry) {
    static const std::vector<BackwardKernel> kernels = {
#define TILEWISE_SM90_BACKWARD(name, ...) tile_kernel<BackwardTraits<__VA_ARGS__>>(#name, name##_entry),
#include "cuda/sm90/kernels.inc"
#undef TILEWISE_SM90_FORWARD
#undef TILEWISE_SM90_TWOPASS
#undef TILEWISE_SM90_BACKWARD
    };
    for (const BackwardKernel& kernel : kernels) {
        KernelRow row = tile_kernel_row(kernel, Op::kBackward);
        row.isa = 90;
        row.max_head_dim_v = kernel.shape.head_dim_v;
        row.refuse = refuse;
        row.layout = layout;
        row.cost = cost;
        row.launch = launch;
        registry.add(std::move(row));
    }
}

}  // namespace tilewise::cuda::sm90
