// What the host sides of attention kernels share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <type_traits>

#include "core/cost.hpp"
#include "core/problem.hpp"
#include "core/view.hpp"
#include "core/workspace.hpp"
#include "cuda/common/params.hpp"
#include "cuda/common/row.hpp"
#include "cuda/shared/bwd_prologue.hpp"
#include "cuda/shared/vectors.hpp"
#include "math/online_softmax.hpp"

namespace tilewise::cuda {

constexpr double kLaunchSeconds = 4e-6;
constexpr double kBlockStartSeconds = 2e-6;  // until a block's first keys are there

// The first argument that asks for more than scaled scores; null: none does.
inline const char* modifier_of(const Problem& problem) {
    if (problem.score.softcap > 0) return "softcap";
    if (problem.score.dropout_p > 0) return "dropout_p";
    if (problem.has(Arg::kAlibiSlopes)) return "alibi_slopes";
    if (problem.has(Arg::kBias)) return "bias";
    return problem.has(Arg::kMask) ? "mask" : nullptr;
}

// Empty where the GPU has the shared memory that a block needs.
inline std::string shared_memory_refusal(int32_t bytes, const DeviceInfo& device) {
    if (bytes <= device.cuda.shared_memory_per_block) return {};
    return fmt::format("needs {} bytes of shared memory a block; this GPU allows {}", bytes,
                       device.cuda.shared_memory_per_block);
}

// What a row of the tensor-core forward or backward fixes at compile time.
template <class Shape> struct TileKernel {
    const char* name = nullptr;
    DType dtype = DType::kNone;
    bool has_modifiers = false;
    Shape shape = {};
    int32_t shared_bytes = 0;
    int32_t num_threads = 0;
    const void* (*entry)() = nullptr;
};
template <class Traits> auto tile_kernel(const char* name, const void* (*entry)()) {
    return TileKernel<std::remove_const_t<decltype(Traits::kShape)>>{name,
                                                                     Element<typename Traits::Element>::kType,
                                                                     Traits::kHasModifiers,
                                                                     Traits::kShape,
                                                                     Traits::kSharedBytes,
                                                                     Traits::kThreads,
                                                                     entry};
}
template <class Shape>
std::string tile_kernel_refusal(const TileKernel<Shape>& kernel, const Problem& problem, const DeviceInfo& device) {
    if (const char* modifier = modifier_of(problem); !kernel.has_modifiers && modifier != nullptr)
        return std::string(modifier) + ": it only scales scores; the kernels named _mod do more";
    return shared_memory_refusal(kernel.shared_bytes, device);
}
// The row but for its functions.
template <class Shape> KernelRow tile_kernel_row(const TileKernel<Shape>& kernel, Op op) {
    KernelRow row = cuda_row(kernel.name, op, {kernel.dtype});
    row.max_head_dim = kernel.shape.head_dim;
    if (!kernel.has_modifiers) row.features = "all but softcap, ALiBi, bias, mask and dropout";
    row.kernel = &kernel;
    return row;
}

inline int64_t blocks_of(const TileMap& map) {
    return map.num_sequences * map.num_heads * map.num_tiles * map.num_splits;
}

inline HeadDims dims_of(const Step& step) {
    HeadDims dims;
    dims.head_dim = static_cast<int32_t>(step.sizes.head_dim);
    dims.head_dim_v = static_cast<int32_t>(step.sizes.head_dim_v);
    dims.vector_q = allows_vectors(step.problem[Arg::kQ]);
    dims.vector_k = allows_vectors(step.problem[Arg::kK]);
    dims.vector_v = allows_vectors(step.problem[Arg::kV]);
    dims.vector_o = allows_vectors(step.problem[Arg::kO]);
    return dims;
}

// Calls launch(dims) for each block of `columns` columns of v.
// By value: launch may write to where the caller has its dims.
template <class Launch> Status for_each_columns(HeadDims whole, int32_t columns, Launch&& launch) {
    for (int32_t first = 0; first < whole.head_dim_v; first += columns) {
        HeadDims dims = whole;
        dims.first_column_v = first;
        dims.head_dim_v = std::min(whole.head_dim_v - first, columns);
        if (Status status = launch(dims); !status.ok()) return status;
    }
    return {};
}

// What a raw score is multiplied with to be a base-2 logarithm. A product with -inf must stay -inf, so a scale of 0 becomes a tiny one.
inline float score_scale_of(const Step& step, bool has_modifiers) {
    constexpr float kSmallest = 1e-30f;
    return has_modifiers ? kLog2E : std::max(softmax_scale_of(step.problem) * kLog2E, kSmallest);
}

inline void add_partial_blocks(WorkspaceLayout& layout, const Step& step) {
    const int64_t rows = step.num_splits * step.sizes.total_q * step.sizes.num_heads_q;
    layout.add("partial_o", rows * step.sizes.head_dim_v * int64_t{sizeof(float)});
    layout.add("partial_lse", rows * int64_t{sizeof(float)});
}
inline PartialOutput partial_output(const Step& step, const Arguments& arguments) {
    PartialOutput partial;
    partial.o = arguments.at<float>(step.block("partial_o"));
    partial.lse = arguments.at<float>(step.block("partial_lse"));
    partial.num_rows = step.sizes.total_q * step.sizes.num_heads_q;
    partial.rows_per_batch = step.problem.has(Arg::kCuSeqlensQ) ? 0 : step.sizes.max_seqlen_q;
    return partial;
}

// A tensor-core backward stores dS itself where each element of grad_bias is one pair; zeros before it are one fill where the elements lie
// side by side.
inline bool stores_grad_bias(const Problem& problem, const Sizes& sizes) {
    const TensorDesc& tensor = problem[Arg::kGradBias];
    return tensor.given() && problem.score.softcap == 0 && tensor.dim(0) == sizes.batch &&
           tensor.dim(1) == sizes.num_heads_q && tensor.dim(2) == sizes.max_seqlen_q &&
           tensor.dim(3) == sizes.max_seqlen_k && tensor.last_offset() + 1 == tensor.num_elements();
}

// Tiles of `tile_keys` keys, whose blocks make dK and dV.
inline TileMap key_tile_map(const Step& step, int32_t tile_keys) {
    const Sizes& sizes = step.sizes;
    TileMap map;
    map.tile_m = tile_keys;
    map.num_heads = static_cast<int32_t>(sizes.num_heads_kv);
    map.gqa_ratio = static_cast<int32_t>(std::max<int64_t>(sizes.gqa_ratio(), 1));
    map.ragged = step.problem.has(Arg::kCuSeqlensK);
    map.num_tiles = map.ragged ? sizes.total_k / tile_keys + sizes.batch : ceil_div(sizes.max_seqlen_k, tile_keys);
    map.num_sequences = map.ragged ? std::min<int64_t>(sizes.batch, 1) : sizes.batch;
    map.batch = static_cast<int32_t>(sizes.batch);
    map.num_splits = step.num_splits;
    map.heads_per_section = static_cast<int32_t>(step.tiling.heads_per_section);
    return map;
}
// How many (sequence, key head) pairs have `bytes` of q, dO and f32 sums of dQ.
inline int64_t key_heads_in(int64_t bytes, const Step& step) {
    constexpr int64_t kBytesOfColumn = 8;  // 2 of q, 2 of dO, 4 of dQ
    const Sizes& sizes = step.sizes;
    const int64_t of_head = sizes.max_seqlen_q * sizes.gqa_ratio() * sizes.head_dim * kBytesOfColumn;
    const int64_t sequences = step.problem.has(Arg::kCuSeqlensK) ? 1 : sizes.batch;
    return std::clamp<int64_t>(bytes / std::max<int64_t>(of_head, 1), 1,
                               std::max<int64_t>(sequences * sizes.num_heads_kv, 1));
}

// Of a backward's tiles.
struct BackwardEffort {
    double columns = 0;  // of the products of a pair, zero columns included
    double reached = 1;  // of the tensor pipe's rate
    double filled = 1;   // blocks, for each that runs at once
};
inline double backward_seconds(const Step& step, const DeviceInfo& device, const BackwardEffort& effort) {
    constexpr int kLaunches = 3;
    const double pairs = visible_pairs(step.problem, step.sizes) * static_cast<double>(step.sizes.num_heads_q);
    const Work work = {2 * pairs * effort.columns, work_of(step.problem, step.sizes).bytes};
    Rates rates = cuda_rates(device);
    // Else the batch would choose the kernel.
    const double share = step.problem.exec.batch_invariant ? 1.0 : std::clamp(effort.filled, 1e-3, 1.0);
    rates.flops_per_second *= effort.reached * share;
    return kLaunchSeconds * kLaunches + roofline_seconds(work, rates);
}

// What every backward keeps of its rows. The caller adds dims, tiles and the sums that its kernels want.
inline void add_backward_blocks(WorkspaceLayout& layout, const Step& step) {
    const int64_t bytes = step.sizes.total_q * step.sizes.num_heads_q * int64_t{sizeof(float)};
    layout.add("delta", bytes);
    layout.add("lse_log2", bytes);
    add_sink_block(layout, step, step.sizes.total_q);
}
inline BackwardParams backward_params(const Step& step, const Arguments& arguments) {
    BackwardParams params;
    params.view = make_attention_view(step, arguments);
    params.grad.o = head_tensor(step, arguments, Arg::kGradO);
    params.grad.q = head_tensor(step, arguments, Arg::kGradQ);
    params.grad.k = head_tensor(step, arguments, Arg::kGradK);
    params.grad.v = head_tensor(step, arguments, Arg::kGradV);
    params.grad.lse = row_tensor(step, arguments, Arg::kGradLse);
    params.grad.bias = pair_tensor(step, arguments, Arg::kGradBias);
    params.scratch.delta = arguments.at<float>(step.block("delta"));
    params.scratch.lse_log2 = arguments.at<float>(step.block("lse_log2"));
    params.scratch.num_rows = step.sizes.total_q * step.sizes.num_heads_q;
    const bool ragged = step.problem.has(Arg::kCuSeqlensQ);
    params.scratch.rows_per_batch = ragged ? 0 : step.sizes.max_seqlen_q;
    params.scratch.head_rows = ragged ? step.sizes.total_q : step.sizes.max_seqlen_q;
    return params;
}

}  // namespace tilewise::cuda
