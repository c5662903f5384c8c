// Plans and launches attention on CUDA cores; the kernels are in f32_fwd.cuh, f32_bwd.cuh and f32_bias.cuh. The rows refuse nothing that
// validate lets through but f64: they are the answer for fp32 tensors and the last resort for 16-bit ones.
#include "cuda/sm80/f32_backend.hpp"

#include <algorithm>

#include "core/cost.hpp"
#include "core/validate.hpp"
#include "core/view.hpp"
#include "core/workspace.hpp"
#include "cuda/common/launch.hpp"
#include "cuda/common/row.hpp"
#include "cuda/shared/bwd_prologue.hpp"
#include "cuda/shared/combine.hpp"
#include "cuda/shared/vectors.hpp"
#include "cuda/sm80/f32_params.hpp"
#include "cuda/shared/parts.hpp"

namespace tilewise::cuda::sm80 {

namespace {

constexpr const char* kForwardName = "sm80_f32_forward";
constexpr const char* kBackwardName = "sm80_f32_backward";

// Fused multiply-adds of all cores at 1.5 GHz, of which tiles of this shape reach about half.
constexpr double kFlopsOfMultiprocessor = 128 * 2 * 1.5e9 * 0.5;
constexpr int64_t kBlocksOfMultiprocessor = 2;
constexpr int64_t kFewestTilesOfSplit = 4;
constexpr int64_t kMostSplits = 64;

// Query heads whose rows lie in one tile: the group of a key head, where a tile would not be full otherwise.
int32_t packed_heads_of(const Sizes& sizes) {
    const int64_t ratio = std::max<int64_t>(sizes.gqa_ratio(), 1);  // 0 without query heads
    return static_cast<int32_t>(sizes.max_seqlen_q < kF32Tile && ratio <= kF32Tile ? ratio : 1);
}

TileMap query_tiles(const Problem& problem, const Sizes& sizes, int32_t packed_heads) {
    const int64_t queries = kF32Tile / packed_heads;
    TileMap map;
    map.tile_m = kF32Tile;
    map.packed_heads = packed_heads;
    map.num_heads = static_cast<int32_t>(sizes.num_heads_q / packed_heads);
    map.ragged = problem.has(Arg::kCuSeqlensQ);
    map.num_tiles = map.ragged ? sizes.total_q / queries + sizes.batch : ceil_div(sizes.max_seqlen_q, queries);
    map.num_sequences = map.ragged ? std::min<int64_t>(sizes.batch, 1) : sizes.batch;
    map.batch = static_cast<int32_t>(sizes.batch);
    return map;
}

TileMap key_tiles(const Problem& problem, const Sizes& sizes) {
    TileMap map;
    map.tile_m = kF32Tile;
    map.num_heads = static_cast<int32_t>(sizes.num_heads_kv);
    map.ragged = problem.has(Arg::kCuSeqlensK);
    map.num_tiles = map.ragged ? sizes.total_k / kF32Tile + sizes.batch : ceil_div(sizes.max_seqlen_k, kF32Tile);
    map.num_sequences = map.ragged ? std::min<int64_t>(sizes.batch, 1) : sizes.batch;
    map.batch = static_cast<int32_t>(sizes.batch);
    return map;
}

// Whether four columns of a row are one access.
bool has_fours(const TensorDesc& tensor) {
    return allows_access_of(tensor, 4 * static_cast<int>(size_of(tensor.dtype)));
}

HeadDims dims_of(const Step& step, Arg output) {
    HeadDims dims;
    dims.head_dim = static_cast<int32_t>(step.sizes.head_dim);
    dims.head_dim_v = static_cast<int32_t>(step.sizes.head_dim_v);
    dims.vector_q = has_fours(step.problem[Arg::kQ]);
    dims.vector_k = has_fours(step.problem[Arg::kK]);
    dims.vector_v = has_fours(step.problem[Arg::kV]);
    dims.vector_o = has_fours(step.problem[output]);
    return dims;
}

int32_t splits_for(const Step& step, const DeviceInfo& device, const TileMap& tiles) {
    if (step.problem.exec.batch_invariant) return 1;  // bits must not depend on num_splits either
    if (step.problem.exec.num_splits > 0) return step.problem.exec.num_splits;
    const int64_t wanted = kBlocksOfMultiprocessor * device.cuda.num_multiprocessors;
    const int64_t blocks = std::max<int64_t>(blocks_of(tiles), 1);
    const int64_t most = ceil_div(step.sizes.max_seqlen_k, kF32Tile) / kFewestTilesOfSplit;
    return static_cast<int32_t>(std::clamp<int64_t>(std::min(ceil_div(wanted, blocks), most), 1, kMostSplits));
}

void layout_forward(Step& step, const DeviceInfo& device) {
    const Sizes& sizes = step.sizes;
    const TileMap tiles = query_tiles(step.problem, sizes, packed_heads_of(sizes));
    step.tiling = {kF32Tile, kF32Tile, 1};
    step.num_splits = splits_for(step, device, tiles);
    WorkspaceLayout layout(step.workspace_base);
    if (step.num_splits > 1) add_partial_blocks(layout, step);
    step.workspace = layout.take_blocks();
}

void layout_backward(Step& step, const DeviceInfo&) {
    step.tiling = {kF32Tile, kF32Tile, 1};
    WorkspaceLayout layout(step.workspace_base);
    add_backward_blocks(layout, step);
    step.workspace = layout.take_blocks();
}

// Rows that fill no tile cost as much as those that do. S and dP are computed for each gradient.
double cost_of(const Step& step, const DeviceInfo& device) {
    const Sizes& sizes = step.sizes;
    const double packed = packed_heads_of(sizes), rows = static_cast<double>(std::max<int64_t>(sizes.max_seqlen_q, 1));
    const double padding = std::max(1.0, kF32Tile / (rows * packed));
    const double d = static_cast<double>(sizes.head_dim), dv = static_cast<double>(sizes.head_dim_v);
    const double columns = step.problem.op == Op::kBackward ? 5 * d + 3 * dv : d + dv;
    const double pairs = visible_pairs(step.problem, sizes) * static_cast<double>(sizes.num_heads_q);
    const Work work{2 * pairs * columns * padding, work_of(step.problem, sizes).bytes};
    const Rates rates{kFlopsOfMultiprocessor * std::max(device.cuda.num_multiprocessors, 1),
                      cuda_rates(device).bytes_per_second};
    // The same constants as other rows': with batch_invariant, small sequences must not choose another kernel than large ones.
    return kLaunchSeconds * (step.problem.op == Op::kBackward ? 4 : 1) + kBlockStartSeconds +
           roofline_seconds(work, rates);
}

const void* forward_entry(DType dtype, int columns) {
    switch (dtype) {
    case DType::kF32: return f32_forward_entry<float>(columns);
    case DType::kF16: return f32_forward_entry<F16>(columns);
    default: return f32_forward_entry<BF16>(columns);
    }
}
const void* backward_entry(DType dtype, F32Gradient gradient, int columns) {
    switch (dtype) {
    case DType::kF32: return f32_backward_entry<float>(gradient, columns);
    case DType::kF16: return f32_backward_entry<F16>(gradient, columns);
    default: return f32_backward_entry<BF16>(gradient, columns);
    }
}
const void* bias_entry(DType dtype) {
    switch (dtype) {
    case DType::kF32: return f32_bias_entry<float>();
    case DType::kF16: return f32_bias_entry<F16>();
    default: return f32_bias_entry<BF16>();
    }
}

Status launch_forward(const Step& step, const Arguments& arguments) {
    const Sizes& sizes = step.sizes;
    const DType dtype = step.problem[Arg::kQ].dtype;
    ForwardParams params;
    params.view = make_attention_view(step, arguments);
    params.tiles = query_tiles(step.problem, sizes, packed_heads_of(sizes));
    params.tiles.num_splits = step.num_splits;
    if (step.num_splits > 1) params.partial = partial_output(step, arguments);
    const Status status = for_each_columns(dims_of(step, Arg::kO), kF32MostColumns, [&](const HeadDims& dims) {
        params.dims = dims;
        return launch_kernel(kForwardName, forward_entry(dtype, dims.head_dim_v),
                             {blocks_of(params.tiles), kF32Threads, 0}, &params, arguments);
    });
    return status.ok() && step.num_splits > 1 ? merge_splits(params, step, arguments) : status;
}

Status launch_gradient(const BackwardParams& params, const Step& step, const Arguments& arguments,
                       F32Gradient gradient) {
    const int columns = gradient == F32Gradient::kValue ? params.dims.head_dim_v : params.dims.head_dim;
    const void* entry = backward_entry(step.problem[Arg::kQ].dtype, gradient, columns);
    return launch_kernel(kBackwardName, entry, {blocks_of(params.tiles), kF32Threads, 0}, &params, arguments);
}

Status launch_backward(const Step& step, const Arguments& arguments) {
    BackwardParams params = backward_params(step, arguments);
    params.dims = dims_of(step, Arg::kGradO);
    if (Status status = launch_bwd_prologue(params, step, arguments); !status.ok()) return status;
    params.tiles = query_tiles(step.problem, step.sizes, 1);
    if (Status status = launch_gradient(params, step, arguments, F32Gradient::kQuery); !status.ok()) return status;
    if (Status status = launch_f32_bias(params, step, arguments); !status.ok()) return status;
    params.tiles = key_tiles(step.problem, step.sizes);
    if (Status status = launch_gradient(params, step, arguments, F32Gradient::kKey); !status.ok()) return status;
    return for_each_columns(params.dims, kF32MostColumns, [&](const HeadDims& dims) {
        params.dims = dims;
        return launch_gradient(params, step, arguments, F32Gradient::kValue);
    });
}

KernelRow f32_row(const char* name, Op op) {
    KernelRow row = cuda_row(name, op, {DType::kF32, DType::kF16, DType::kBF16});
    row.layout = op == Op::kForward ? layout_forward : layout_backward;
    row.cost = cost_of;
    row.launch = op == Op::kForward ? launch_forward : launch_backward;
    return row;
}

}  // namespace

Status launch_f32_bias(const BackwardParams& params, const Step& step, const Arguments& arguments) {
    const TensorDesc& tensor = step.problem[Arg::kGradBias];
    if (!tensor.given()) return {};
    F32BiasParams bias;
    bias.backward = params;
    bias.grad_bias = params.grad.bias;
    std::copy_n(tensor.shape.begin(), 4, bias.size);
    bias.num_tiles[0] = ceil_div(tensor.dim(2), kF32Tile);
    bias.num_tiles[1] = ceil_div(tensor.dim(3), kF32Tile);
    const int64_t blocks = bias.size[0] * bias.size[1] * bias.num_tiles[0] * bias.num_tiles[1];
    return launch_kernel(kBackwardName, bias_entry(step.problem[Arg::kQ].dtype), {blocks, kF32Threads, 0}, &bias,
                         arguments);
}

void register_f32_rows(Registry& registry) {
    registry.add(f32_row(kForwardName, Op::kForward));
    registry.add(f32_row(kBackwardName, Op::kBackward));
}

}  // namespace tilewise::cuda::sm80
