// Plans and launches the forward of compute capability 9.0; the kernels are in fwd.cuh, their list in kernels.inc.
#include "cuda/sm90/forward_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/cost.hpp"
#include "core/validate.hpp"
#include "core/view.hpp"
#include "core/workspace.hpp"
#include "cuda/common/device_guard.hpp"
#include "cuda/common/launch.hpp"
#include "cuda/shared/combine.hpp"
#include "cuda/shared/parts.hpp"
#include "cuda/sm90/fwd_params.hpp"
#include "cuda/sm90/maps_backend.hpp"
#include "cuda/sm90/traits.hpp"

namespace tilewise::cuda::sm90 {

namespace {

using ForwardKernel = TileKernel<ForwardShape>;

const ForwardKernel& kernel_of(const KernelRow& row) { return *static_cast<const ForwardKernel*>(row.kernel); }
int64_t tile_m_of(const ForwardShape& shape) { return int64_t{kGroupRows} * shape.warpgroups; }

// Of the tensor pipe's rate; without and with modifiers.
constexpr double kReached = 0.72;
constexpr double kModifiersReached = 0.4;
constexpr double kGatherReached = 0.35;
constexpr double kBandwidthReached = 0.7;
// A warpgroup that looks whether its rows see a tile is slower where they all do, and the other one where they do not.
constexpr double kSkipCost = 1.02;
// Where 128 rows a tile fill a head's queries as well, 192 of them with O from registers win on long sequences and lose on short ones.
constexpr double kTallGain = 1.05;
constexpr int64_t kTallQueries = 6144;
constexpr int64_t kFewestTilesOfSplit = 2;
constexpr int64_t kMostSplits = 128;
// Keys and values of the heads whose row tiles are interleaved, longest first: few keep their keys in the second-level cache, many at the end
// of a launch leave short tiles to its last blocks.
constexpr int64_t kSectionBytes = int64_t{4} << 20;
constexpr int64_t kFinalBytes = int64_t{32} << 20;
constexpr int64_t kFinalTiles = 512;  // at least, for long sequences
constexpr int64_t kLongQueries = 2048;

bool is_paged(const Problem& problem) { return problem.has(Arg::kPageTable); }
bool has_bulk_keys(const Problem& problem, const Sizes& sizes, const ForwardShape& shape) {
    return !is_paged(problem) || (sizes.page_size % shape.tile_n == 0 && !problem.has(Arg::kLeftpadK));
}

std::string refuse(const KernelRow& row, const Problem& problem, const DeviceInfo& device) {
    const ForwardKernel& kernel = kernel_of(row);
    if (device.cuda.compute_capability != 90) return "its instructions exist on compute capability 9.0 only";
    if (std::string reason = tile_kernel_refusal(kernel, problem, device); !reason.empty()) return reason;
    for (const Arg arg : {Arg::kQ, Arg::kK, Arg::kV})
        if (std::string reason = map_refusal(name_of(arg), problem[arg]); !reason.empty()) return reason;
    if (!allows_vectors(problem[Arg::kO])) return "o: base, strides and rows must be multiples of 16 bytes";
    const Sizes sizes = sizes_of(problem);
    if (sizes.max_seqlen_k == 0) return "k: has no rows";
    if (!kernel.has_modifiers && !has_bulk_keys(problem, sizes, kernel.shape))
        return fmt::format(
            "page_table: pages of {} rows{} do not hold whole tiles of {} keys; the kernels named _any gather them",
            sizes.page_size, problem.has(Arg::kLeftpadK) ? " behind leftpad_k" : "", kernel.shape.tile_n);
    return {};
}

// The query heads of a key head share a tile where one head's queries would not fill it, and the copy engine can bring them as one box.
int32_t packed_heads_of(const Sizes& sizes, const ForwardShape& shape) {
    const int64_t ratio = std::max<int64_t>(sizes.gqa_ratio(), 1), tile_m = tile_m_of(shape);
    if (ratio == 1 || tile_m % ratio != 0) return 1;
    const int64_t separate = ratio * ceil_div(sizes.max_seqlen_q, tile_m);
    const int64_t packed = ceil_div(sizes.max_seqlen_q, tile_m / ratio);
    return static_cast<int32_t>(packed < separate ? ratio : 1);
}

TileMap tiles_of(const Step& step, const ForwardShape& shape) {
    const Sizes& sizes = step.sizes;
    TileMap map;
    map.tile_m = static_cast<int32_t>(tile_m_of(shape));
    map.packed_heads = step.tiling.packed_heads;
    map.num_heads = static_cast<int32_t>(sizes.num_heads_q / map.packed_heads);
    map.gqa_ratio = static_cast<int32_t>(std::max<int64_t>(sizes.gqa_ratio(), 1));
    map.ragged = step.problem.has(Arg::kCuSeqlensQ);
    const int64_t queries = map.tile_m / map.packed_heads;
    map.num_tiles = map.ragged ? sizes.total_q / queries + sizes.batch
                               : ceil_div(sizes.max_seqlen_q * map.packed_heads, map.tile_m);
    map.num_sequences = map.ragged ? std::min<int64_t>(sizes.batch, 1) : sizes.batch;
    map.batch = static_cast<int32_t>(sizes.batch);
    map.num_splits = step.num_splits;
    map.heads_per_section = static_cast<int32_t>(step.tiling.heads_per_section);
    return map;
}
int64_t tile_heads_of(const TileMap& map) { return map.num_sequences * map.num_heads; }

// Row tiles whose (sequence, head) pairs have `bytes` of keys and values.
int64_t heads_in(int64_t bytes, const Step& step, int64_t tile_heads) {
    const Sizes& sizes = step.sizes;
    const int64_t sharing = std::max<int64_t>(sizes.gqa_ratio() / step.tiling.packed_heads, 1);
    const int64_t of_head =
        std::max<int64_t>(sizes.max_seqlen_k * (sizes.head_dim + sizes.head_dim_v) * 2 / sharing, 1);
    return std::clamp<int64_t>(bytes / of_head, 1, std::max<int64_t>(tile_heads, 1));
}

bool is_uneven(const Step& step) { return is_positional(step.problem.mask) || step.problem.has(Arg::kCuSeqlensQ); }

Schedule schedule_of(const Step& step, const TileMap& map) {
    Schedule schedule;
    schedule.total = static_cast<uint32_t>(blocks_of(map));
    const int64_t heads = tile_heads_of(map);
    schedule.section_heads = static_cast<uint32_t>(std::max<int64_t>(map.heads_per_section, 1));
    schedule.longest_first = is_positional(step.problem.mask) && !map.ragged;
    if (!schedule.longest_first) return schedule;
    int64_t last = heads_in(kFinalBytes, step, heads);
    if (step.sizes.max_seqlen_q >= kLongQueries)
        while (last * map.num_tiles < kFinalTiles && last < heads) last = std::min(2 * last, heads);
    schedule.final_heads = static_cast<uint32_t>(last);
    return schedule;
}

int32_t splits_for(const Step& step, const ForwardShape& shape, const DeviceInfo& device) {
    if (step.problem.exec.batch_invariant) return 1;  // bits must not depend on num_splits either
    if (step.problem.exec.num_splits > 0) return step.problem.exec.num_splits;
    const int64_t blocks = std::max<int64_t>(blocks_of(tiles_of(step, shape)), 1);
    const int64_t most = ceil_div(step.sizes.max_seqlen_k, shape.tile_n) / kFewestTilesOfSplit;
    const int64_t wanted = device.cuda.num_multiprocessors;
    if (2 * blocks > wanted) return 1;  // the merge costs more than half a wave of blocks
    return static_cast<int32_t>(std::clamp<int64_t>(std::min(wanted / blocks, most), 1, kMostSplits));
}

void layout(Step& step, const DeviceInfo& device) {
    const ForwardShape& shape = kernel_of(*step.row).shape;
    step.tiling = {static_cast<int32_t>(tile_m_of(shape)), shape.tile_n, shape.kv_stages};
    step.tiling.packed_heads = packed_heads_of(step.sizes, shape);
    step.num_splits = 1;
    step.tiling.heads_per_section = 1;
    const TileMap map = tiles_of(step, shape);
    // Ragged tiles of one number are of different sequences: there all heads of a sequence are neighbours.
    step.tiling.heads_per_section = map.ragged ? std::max<int64_t>(tile_heads_of(map), 1)
                                    : is_positional(step.problem.mask)
                                        ? heads_in(kSectionBytes, step, tile_heads_of(map))
                                        : 1;
    step.num_splits = splits_for(step, shape, device);
    step.tiling.num_blocks = device.cuda.num_multiprocessors;
    WorkspaceLayout layout(step.workspace_base);
    if (step.num_splits > 1) add_partial_blocks(layout, step);
    if (is_uneven(step)) layout.add("ticket", sizeof(uint64_t));
    step.workspace = layout.take_blocks();
}

// What the tensor pipe multiplies, zero columns and rows of half-full tiles included; S again for each block of columns of v.
double cost(const Step& step, const DeviceInfo& device) {
    const ForwardKernel& kernel = kernel_of(*step.row);
    const ForwardShape& shape = kernel.shape;
    const Sizes& sizes = step.sizes;
    const double rows = static_cast<double>(std::max<int64_t>(sizes.max_seqlen_q, 1)) * step.tiling.packed_heads;
    const double padding = static_cast<double>(round_up(static_cast<int64_t>(rows), tile_m_of(shape))) / rows;
    const double columns = static_cast<double>(ceil_div(std::max<int64_t>(sizes.head_dim_v, 1), shape.head_dim_v)) *
                           (shape.head_dim + shape.head_dim_v);
    const bool gathers = !has_bulk_keys(step.problem, sizes, shape);
    const double rate = !kernel.has_modifiers ? kReached : gathers ? kGatherReached : kModifiersReached;
    const double pairs = visible_pairs(step.problem, sizes) * static_cast<double>(sizes.num_heads_q);
    const Work work = {2 * pairs * columns * padding, work_of(step.problem, sizes).bytes};
    Rates rates = cuda_rates(device);
    rates.flops_per_second *= rate / ((shape.skips != 0) != is_positional(step.problem.mask) ? kSkipCost : 1.0);
    if (shape.warpgroups == 3 && shape.staged == 0)
        rates.flops_per_second *= sizes.max_seqlen_q >= kTallQueries ? kTallGain : 1 / kTallGain;
    const double filled = static_cast<double>(blocks_of(tiles_of(step, shape))) / device.cuda.num_multiprocessors;
    const double share = step.problem.exec.batch_invariant
                             ? 1.0
                             : std::clamp(filled, 1e-3, 1.0);  // else the batch would choose the kernel
    rates.flops_per_second *= share;
    rates.bytes_per_second *= kBandwidthReached * share;
    return kLaunchSeconds * (step.num_splits > 1 ? 2 : 1) + kBlockStartSeconds + roofline_seconds(work, rates);
}

Status make_maps(const Step& step, const ForwardShape& shape, const TileMap& tiles, BulkForwardParams* params) {
    const Problem& problem = step.problem;
    const AttentionView& view = params->base.view;
    const Box q = {kPanelColumns, tiles.packed_heads, tiles.tile_m / tiles.packed_heads};
    const Box keys = {kPanelColumns, 1, shape.tile_n};
    if (Status status = make_map("q", problem[Arg::kQ], view.q, q, &params->q); !status.ok()) return status;
    if (params->bulk_output) {
        const Box o = {kPanelColumns, tiles.packed_heads, kGroupRows / tiles.packed_heads};
        if (Status status = make_map("o", problem[Arg::kO], view.o, o, &params->o); !status.ok()) return status;
    }
    if (!params->bulk_keys) return {};
    if (Status status = make_map("k", problem[Arg::kK], view.k, keys, &params->k); !status.ok()) return status;
    return make_map("v", problem[Arg::kV], view.v, keys, &params->v);
}

Status launch(const Step& step, const Arguments& arguments) {
    const ForwardKernel& kernel = kernel_of(*step.row);
    BulkForwardParams params{};  // maps that are not made are zeros
    ForwardParams& base = params.base;
    base.view = make_attention_view(step, arguments);
    base.tiles = tiles_of(step, kernel.shape);
    if (blocks_of(base.tiles) > std::numeric_limits<int32_t>::max())
        return Status::unsupported(fmt::format(
            "{}: this call takes {} row tiles; a launch has at most 2^31 - 1: split the batch over several calls",
            kernel.name, blocks_of(base.tiles)));
    params.has_modifiers = modifier_of(step.problem) != nullptr;
    base.score_scale = score_scale_of(step, params.has_modifiers);
    params.score_slack = kSlack / base.score_scale;
    if (step.num_splits > 1) base.partial = partial_output(step, arguments);
    params.schedule = schedule_of(step, base.tiles);
    if (is_uneven(step)) params.schedule.ticket = arguments.at<uint64_t>(step.block("ticket"));
    params.bulk_keys = has_bulk_keys(step.problem, step.sizes, kernel.shape);
    params.mapped_keys = is_paged(step.problem) ? std::numeric_limits<int64_t>::max()
                                                : step.problem[Arg::kK].dim(step.problem[Arg::kK].rank - 3);
    params.bulk_output = kernel.shape.staged != 0 && step.num_splits == 1 &&
                         kGroupRows % base.tiles.packed_heads == 0 && map_refusal("o", step.problem[Arg::kO]).empty();
    const DeviceGuard guard(arguments.device);  // the encoder of maps wants a current context
    if (!guard.status().ok()) return guard.status();
    if (Status status = make_maps(step, kernel.shape, base.tiles, &params); !status.ok()) return status;
    const int64_t blocks = std::min<int64_t>(params.schedule.total, step.tiling.num_blocks);
    const LaunchShape launch_shape = {blocks, kernel.num_threads, kernel.shared_bytes};
    const Status status = for_each_columns(dims_of(step), kernel.shape.head_dim_v, [&](const HeadDims& dims) {
        base.dims = dims;
        return launch_kernel(kernel.name, kernel.entry(), launch_shape, &params, arguments);
    });
    if (!status.ok()) return status;
    return step.num_splits > 1 ? merge_splits(base, step, arguments) : Status();
}

}  // namespace

#define TILEWISE_SM90_BACKWARD(name, ...)
#define TILEWISE_SM90_TWOPASS(name, ...)
#define TILEWISE_SM90_FORWARD(name, ...) const void* name##_entry();
#include "cuda/sm90/kernels.inc"
#undef TILEWISE_SM90_FORWARD

void register_forward_rows(Registry& registry) {
    static const ForwardKernel kernels[] = {
#define TILEWISE_SM90_FORWARD(name, ...) tile_kernel<ForwardTraits<__VA_ARGS__>>(#name, name##_entry),
#include "cuda/sm90/kernels.inc"
#undef TILEWISE_SM90_FORWARD
#undef TILEWISE_SM90_BACKWARD
#undef TILEWISE_SM90_TWOPASS
    };
    for (const ForwardKernel& kernel : kernels) {
        KernelRow row = tile_kernel_row(kernel, Op::kForward);
        row.isa = 90;
        row.refuse = refuse;
        row.layout = layout;
        row.cost = cost;
        row.launch = launch;
        registry.add(std::move(row));
    }
}

}  // namespace tilewise::cuda::sm90
