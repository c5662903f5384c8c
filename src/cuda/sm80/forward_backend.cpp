// Plans and launches the tensor-core forward; the kernels are in fwd.cuh, their list in kernels.inc.
#include "cuda/sm80/forward_backend.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/cost.hpp"
#include "core/validate.hpp"
#include "core/view.hpp"
#include "core/workspace.hpp"
#include "cuda/common/launch.hpp"
#include "cuda/shared/combine.hpp"
#include "cuda/shared/parts.hpp"
#include "cuda/sm80/traits.hpp"

namespace tilewise::cuda::sm80 {

namespace {

using ForwardKernel = TileKernel<ForwardShape>;

const ForwardKernel& kernel_of(const KernelRow& row) { return *static_cast<const ForwardKernel*>(row.kernel); }

// Of the tensor pipe's rate for these instructions.
constexpr double kReached = 0.6;
// Of the memory's bandwidth where keys are the work: a few stages a block are on their way, which is less than decode kernels have.
constexpr double kBandwidthReached = 0.7;
// A key range shorter than this many tiles is not worth a merge.
constexpr int64_t kFewestTilesOfSplit = 4;
constexpr int64_t kMostSplits = 128;
// Keys and values of the heads of a section: with causal rows the longest tiles of many heads come first, which evens out the end of the
// launch; without, a few heads at a time keep their keys in the L2 cache.
constexpr int64_t kSectionBytes = int64_t{64} << 20;
constexpr int64_t kEvenSectionBytes = int64_t{8} << 20;

std::string refuse(const KernelRow& row, const Problem& problem, const DeviceInfo& device) {
    return tile_kernel_refusal(kernel_of(row), problem, device);
}

// The query heads of a key head share a tile where one head's queries would not fill it.
int32_t packed_heads_of(const Sizes& sizes, const ForwardShape& shape) {
    const int64_t ratio = std::max<int64_t>(sizes.gqa_ratio(), 1);
    if (ratio == 1 || ratio > shape.tile_m) return 1;
    const int64_t separate = ratio * ceil_div(sizes.max_seqlen_q, shape.tile_m);
    const int64_t packed = ceil_div(sizes.max_seqlen_q, shape.tile_m / ratio);
    return static_cast<int32_t>(packed < separate ? ratio : 1);
}

TileMap tiles_of(const Step& step, const ForwardShape& shape) {
    const Sizes& sizes = step.sizes;
    TileMap map;
    map.tile_m = shape.tile_m;
    map.packed_heads = step.tiling.packed_heads;
    map.num_heads = static_cast<int32_t>(sizes.num_heads_q / map.packed_heads);
    map.gqa_ratio = static_cast<int32_t>(std::max<int64_t>(sizes.gqa_ratio(), 1));
    map.ragged = step.problem.has(Arg::kCuSeqlensQ);
    const int64_t queries = shape.tile_m / map.packed_heads;
    map.num_tiles = map.ragged ? sizes.total_q / queries + sizes.batch
                               : ceil_div(sizes.max_seqlen_q * map.packed_heads, shape.tile_m);
    map.num_sequences = map.ragged ? std::min<int64_t>(sizes.batch, 1) : sizes.batch;
    map.batch = static_cast<int32_t>(sizes.batch);
    map.num_splits = step.num_splits;
    map.heads_per_section = static_cast<int32_t>(step.tiling.heads_per_section);
    return map;
}

int64_t section_of(const Step& step) {
    const Sizes& sizes = step.sizes;
    const int64_t bytes = sizes.max_seqlen_k * (sizes.head_dim + sizes.head_dim_v) * 2;
    const int64_t wanted =
        (is_positional(step.problem.mask) ? kSectionBytes : kEvenSectionBytes) / std::max<int64_t>(bytes, 1);
    const int64_t sequences = step.problem.has(Arg::kCuSeqlensQ) ? 1 : sizes.batch;
    return std::clamp<int64_t>(wanted, 1,
                               std::max<int64_t>(sequences * sizes.num_heads_q / step.tiling.packed_heads, 1));
}

int32_t splits_for(const Step& step, const ForwardShape& shape, const DeviceInfo& device) {
    if (step.problem.exec.batch_invariant) return 1;  // bits must not depend on num_splits either
    if (step.problem.exec.num_splits > 0) return step.problem.exec.num_splits;
    const int64_t wanted = int64_t{shape.min_blocks} * device.cuda.num_multiprocessors;
    const int64_t blocks = std::max<int64_t>(blocks_of(tiles_of(step, shape)), 1);
    const int64_t most = ceil_div(step.sizes.max_seqlen_k, shape.tile_n) / kFewestTilesOfSplit;
    if (2 * blocks > wanted) return 1;  // the merge costs more than half a wave of blocks
    return static_cast<int32_t>(std::clamp<int64_t>(std::min(wanted / blocks, most), 1, kMostSplits));
}

void layout(Step& step, const DeviceInfo& device) {
    const ForwardShape& shape = kernel_of(*step.row).shape;
    const Sizes& sizes = step.sizes;
    step.tiling = {shape.tile_m, shape.tile_n, shape.num_stages};
    step.tiling.packed_heads = packed_heads_of(sizes, shape);
    step.tiling.heads_per_section = section_of(step);
    step.num_splits = 1;
    step.num_splits = splits_for(step, shape, device);
    WorkspaceLayout layout(step.workspace_base);
    if (step.num_splits > 1) add_partial_blocks(layout, step);
    step.workspace = layout.take_blocks();
}

// What the tensor pipe multiplies, zero columns and rows of half-full tiles included; S again for each block of columns of v.
double cost(const Step& step, const DeviceInfo& device) {
    const ForwardKernel& kernel = kernel_of(*step.row);
    const ForwardShape& shape = kernel.shape;
    const Sizes& sizes = step.sizes;
    const double rows = static_cast<double>(std::max<int64_t>(sizes.max_seqlen_q, 1)) * step.tiling.packed_heads;
    const double padding = static_cast<double>(round_up(static_cast<int64_t>(rows), shape.tile_m)) / rows;
    const double columns = static_cast<double>(ceil_div(std::max<int64_t>(sizes.head_dim_v, 1), shape.head_dim_v)) *
                           (shape.head_dim + shape.head_dim_v);
    // With 16 rows a warp, shared memory and not the tensor pipe is the limit.
    const double rate =
        kReached * (shape.tile_m / shape.num_warps >= 32 ? 1.0 : 0.85) * (kernel.has_modifiers ? 0.7 : 1.0);
    const double pairs = visible_pairs(step.problem, sizes) * static_cast<double>(sizes.num_heads_q);
    const Work work = {2 * pairs * columns * padding, work_of(step.problem, sizes).bytes};
    Rates rates = cuda_rates(device);
    rates.flops_per_second *= rate;
    // Blocks that are too few leave multiprocessors without work.
    const double filled =
        static_cast<double>(blocks_of(tiles_of(step, shape))) / (device.cuda.num_multiprocessors * shape.min_blocks);
    const double share = step.problem.exec.batch_invariant
                             ? 1.0
                             : std::clamp(filled, 1e-3, 1.0);  // else the batch would choose the kernel
    rates.flops_per_second *= share;
    rates.bytes_per_second *= kBandwidthReached * share;
    return kLaunchSeconds * (step.num_splits > 1 ? 2 : 1) + kBlockStartSeconds + roofline_seconds(work, rates);
}

Status launch(const Step& step, const Arguments& arguments) {
    const ForwardKernel& kernel = kernel_of(*step.row);
    ForwardParams params;
    params.view = make_attention_view(step, arguments);
    params.tiles = tiles_of(step, kernel.shape);
    params.score_scale = score_scale_of(step, kernel.has_modifiers);
    if (step.num_splits > 1) params.partial = partial_output(step, arguments);
    const LaunchShape launch_shape = {blocks_of(params.tiles), kernel.num_threads, kernel.shared_bytes};
    const Status status = for_each_columns(dims_of(step), kernel.shape.head_dim_v, [&](const HeadDims& dims) {
        params.dims = dims;
        return launch_kernel(kernel.name, kernel.entry(), launch_shape, &params, arguments);
    });
    if (!status.ok()) return status;
    return step.num_splits > 1 ? merge_splits(params, step, arguments) : Status();
}

}  // namespace

#define TILEWISE_SM80_DECODE(name, ...)
#define TILEWISE_SM80_BACKWARD(name, ...)
#define TILEWISE_SM80_FORWARD(name, ...) const void* name##_entry();
#include "cuda/sm80/kernels.inc"
#undef TILEWISE_SM80_FORWARD

void register_forward_rows(Registry& registry) {
    static const ForwardKernel kernels[] = {
#define TILEWISE_SM80_FORWARD(name, ...) tile_kernel<ForwardTraits<__VA_ARGS__>>(#name, name##_entry),
#include "cuda/sm80/kernels.inc"
#undef TILEWISE_SM80_DECODE
#undef TILEWISE_SM80_BACKWARD
#undef TILEWISE_SM80_FORWARD
    };
    for (const ForwardKernel& kernel : kernels) {
        KernelRow row = tile_kernel_row(kernel, Op::kForward);
        row.refuse = refuse;
        row.layout = layout;
        row.cost = cost;
        row.launch = launch;
        registry.add(std::move(row));
    }
}

}  // namespace tilewise::cuda::sm80
