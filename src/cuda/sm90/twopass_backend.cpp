// Plans and launches the backward of compute capability 9.0 in two passes; the kernels are in keypass.cuh and querypass.cuh, their list in
// kernels.inc. A call is a prologue (delta, lse), the pass over keys (dK, dV) and the pass over queries (dQ). Nothing is summed in global
// memory, so that gradients are bitwise repeatable whether asked for or not.
#include <algorithm>
#include <vector>

#include "core/validate.hpp"
#include "core/view.hpp"
#include "core/workspace.hpp"
#include "cuda/common/device_guard.hpp"
#include "cuda/common/launch.hpp"
#include "cuda/sm90/backward_backend.hpp"
#include "cuda/sm90/bwd_parts_backend.hpp"
#include "cuda/sm90/twopass_traits.hpp"

namespace tilewise::cuda::sm90 {

namespace {

struct TwoPassKernel : TileKernel<TwoPassShape> {  // of the pass over keys
    int32_t second_bytes = 0;
    const void* (*second_entry)() = nullptr;
};
const TwoPassKernel& kernel_of(const KernelRow& row) {
    return *static_cast<const TwoPassKernel*>(static_cast<const TileKernel<TwoPassShape>*>(row.kernel));
}
template <class Keys, class Queries>
TwoPassKernel two_pass_kernel(const char* name, const void* (*entry)(), const void* (*second_entry)()) {
    return {tile_kernel<Keys>(name, entry), Queries::kSharedBytes, second_entry};
}

// Of the tensor pipe's rate, which makes seven products for the five that are needed.
constexpr double kReached = 0.65;
constexpr double kModifiersReached = 0.25;

std::string refuse(const KernelRow& row, const Problem& problem, const DeviceInfo& device) {
    const TwoPassKernel& kernel = kernel_of(row);
    if (std::string reason = bulk_refusal(problem, device); !reason.empty()) return reason;
    if (std::string reason = tile_kernel_refusal(kernel, problem, device); !reason.empty()) return reason;
    return shared_memory_refusal(kernel.second_bytes, device);
}

// Of the pass over queries.
TileMap query_tiles_of(const Step& step) {
    const Sizes& sizes = step.sizes;
    TileMap map;
    map.tile_m = kTwoPassGroups * kGroupRows;
    map.num_heads = static_cast<int32_t>(sizes.num_heads_q);
    map.gqa_ratio = static_cast<int32_t>(std::max<int64_t>(sizes.gqa_ratio(), 1));
    map.ragged = step.problem.has(Arg::kCuSeqlensQ);
    map.num_tiles = row_tiles_of(step, map.tile_m) / (map.ragged ? 1 : std::max<int64_t>(sizes.batch, 1));
    map.num_sequences = map.ragged ? std::min<int64_t>(sizes.batch, 1) : sizes.batch;
    map.batch = static_cast<int32_t>(sizes.batch);
    map.heads_per_section = static_cast<int32_t>(
        std::clamp<int64_t>(step.tiling.heads_per_section, 1, std::max<int64_t>(map.num_sequences * map.num_heads, 1)));
    return map;
}

void layout(Step& step, const DeviceInfo&) {
    const TwoPassShape& shape = kernel_of(*step.row).shape;
    step.tiling = {kTwoPassTile, kTwoPassTile, shape.q_stages};
    step.tiling.heads_per_section = backward_section_of(step);
    step.num_splits = 1;
    WorkspaceLayout layout(step.workspace_base);
    add_row_blocks(layout, step, kTwoPassTile, 0);
    step.workspace = layout.take_blocks();
}

double cost(const Step& step, const DeviceInfo& device) {
    const auto& kernel = kernel_of(*step.row);
    const auto& shape = kernel.shape;
    BackwardEffort effort;
    effort.columns = 4 * shape.head_dim + 3 * shape.head_dim_v;
    effort.reached = kernel.has_modifiers ? kModifiersReached : kReached;
    effort.filled = static_cast<double>(blocks_of(key_tile_map(step, kTwoPassTile))) / device.cuda.num_multiprocessors;
    return backward_seconds(step, device, effort);
}

Status make_second_maps(const Step& step, const TwoPassShape& shape, BulkBackwardParams* params) {
    const Box rows = {kPanelColumns, 1, kTwoPassGroups * kGroupRows}, keys = {kPanelColumns, 1, shape.tile_n};
    const AttentionView& view = params->base.view;
    QueryPassParams& second = params->second;
    return make_maps(step.problem, {{Arg::kQ, view.q, rows, &second.q},
                                    {Arg::kGradO, params->base.grad.o, rows, &second.grad_o},
                                    {Arg::kK, view.k, keys, &second.k},
                                    {Arg::kV, view.v, keys, &second.v}});
}

Status launch(const Step& step, const Arguments& arguments) {
    const TwoPassKernel& kernel = kernel_of(*step.row);
    const BulkBackwardShape shape = {kTwoPassTile, kTwoPassTile, 0, kernel.has_modifiers};
    const DeviceGuard guard(arguments.device);  // the encoder of maps wants a current context
    if (!guard.status().ok()) return guard.status();
    BulkBackwardParams params{};
    Status status = fill_backward_params(step, arguments, shape, &params);
    if (status.ok()) status = make_second_maps(step, kernel.shape, &params);
    params.second.tiles = query_tiles_of(step);
    if (status.ok()) status = launch_bulk_prologue(params, shape, step, arguments);
    const LaunchShape keys = {blocks_of(params.base.tiles), kernel.num_threads, kernel.shared_bytes};
    const LaunchShape queries = {blocks_of(params.second.tiles), kernel.num_threads, kernel.second_bytes};
    if (status.ok()) status = launch_kernel(kernel.name, kernel.entry(), keys, &params, arguments);
    return status.ok() ? launch_kernel(kernel.name, kernel.second_entry(), queries, &params, arguments) : status;
}

}  // namespace

#define TILEWISE_SM90_FORWARD(name, ...)
#define TILEWISE_SM90_BACKWARD(name, ...)
#define TILEWISE_SM90_TWOPASS(name, ...) \
    const void* name##_entry();          \
    const void* name##_second_entry();
#include "cuda/sm90/kernels.inc"
#undef TILEWISE_SM90_TWOPASS

void register_two_pass_rows(Registry& registry) {
    static const std::vector<TwoPassKernel> kernels = {
#define TILEWISE_SM90_TWOPASS(name, ...) \
    two_pass_kernel<KeyPassTraits<__VA_ARGS__>, QueryPassTraits<__VA_ARGS__>>(#name, name##_entry, name##_second_entry),
#include "cuda/sm90/kernels.inc"
#undef TILEWISE_SM90_FORWARD
#undef TILEWISE_SM90_TWOPASS
#undef TILEWISE_SM90_BACKWARD
    };
    for (const TwoPassKernel& kernel : kernels) {
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
