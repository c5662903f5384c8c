// Plans and launches the tensor-core backward; the kernels are in bwd.cuh, their list in kernels.inc. A call is a prologue (delta, zeros),
// the tiles, and an epilogue (f32 sums -> gradients).
#include "cuda/sm80/backward_backend.hpp"

#include <algorithm>

#include "core/cost.hpp"
#include "core/validate.hpp"
#include "core/view.hpp"
#include "core/workspace.hpp"
#include "cuda/common/launch.hpp"
#include "cuda/common/memory.hpp"
#include "cuda/shared/bwd_epilogue.hpp"
#include "cuda/shared/bwd_prologue.hpp"
#include "cuda/shared/parts.hpp"
#include "cuda/sm80/bwd_traits.hpp"
#include "cuda/sm80/f32_backend.hpp"

namespace tilewise::cuda::sm80 {

namespace {

using BackwardKernel = TileKernel<BackwardShape>;

const BackwardKernel& kernel_of(const KernelRow& row) { return *static_cast<const BackwardKernel*>(row.kernel); }

// Of the tensor pipe's rate, with tiles of 128 keys, which load Q and dO and add to dQ half as often as those of 64.
constexpr double kReached = 0.33;
constexpr double kReachedNarrow = 0.26;
constexpr double kReachedOfModifiers = 0.6;
// q, dO and dQ of the heads whose key tiles run side by side. Few where all tiles are equally long: they stay in the L2 cache. More where rows
// are positional: the longest tiles of many heads then come first, and neighbours add to dQ at different times.
constexpr int64_t kEvenSectionBytes = int64_t{8} << 20;
constexpr int64_t kSectionBytes = int64_t{32} << 20;

std::string refuse(const KernelRow& row, const Problem& problem, const DeviceInfo& device) {
    return tile_kernel_refusal(kernel_of(row), problem, device);
}

int64_t section_of(const Step& step) {
    return key_heads_in(is_positional(step.problem.mask) ? kSectionBytes : kEvenSectionBytes, step);
}

// Over how many blocks a group's query heads are divided: the fewest that leave no multiprocessor without a block.
int32_t splits_for(const Step& step, const BackwardShape& shape, const DeviceInfo& device) {
    if (step.problem.exec.batch_invariant) return 1;  // the parts of a sum would depend on the batch
    const int64_t wanted = int64_t{shape.min_blocks} * device.cuda.num_multiprocessors;
    const int64_t blocks = blocks_of(key_tile_map(step, shape.tile_n)), ratio = step.sizes.gqa_ratio();
    int64_t splits = 1;
    for (int64_t i = 2; i <= ratio && blocks * splits < wanted; ++i)
        if (ratio % i == 0) splits = i;
    return static_cast<int32_t>(splits);
}

int64_t order_entries(const Step& step) {
    const Sizes& sizes = step.sizes;
    const int64_t tile_m = kernel_of(*step.row).shape.tile_m;
    const int64_t tiles = step.problem.has(Arg::kCuSeqlensQ) ? sizes.total_q / tile_m + sizes.batch
                                                             : sizes.batch * ceil_div(sizes.max_seqlen_q, tile_m);
    return tiles * sizes.num_heads_q;
}

void layout(Step& step, const DeviceInfo& device) {
    const BackwardShape& shape = kernel_of(*step.row).shape;
    const Sizes& sizes = step.sizes;
    constexpr int64_t kFloat = sizeof(float);
    step.tiling = {shape.tile_m, shape.tile_n, shape.num_stages};
    step.tiling.heads_per_section = section_of(step);
    step.num_splits = 1;
    step.num_splits = splits_for(step, shape, device);
    WorkspaceLayout layout(step.workspace_base);
    add_backward_blocks(layout, step);
    layout.add("dq", sizes.total_q * sizes.num_heads_q * sizes.head_dim * kFloat);
    if (step.num_splits > 1) {
        const int64_t rows = step.num_splits * sizes.total_k * sizes.num_heads_kv;
        layout.add("dk", rows * sizes.head_dim * kFloat);
        layout.add("dv", rows * sizes.head_dim_v * kFloat);
    }
    if (step.problem.exec.deterministic) layout.add("order", order_entries(step) * int64_t{sizeof(int32_t)});
    step.workspace = layout.take_blocks();
}

double cost(const Step& step, const DeviceInfo& device) {
    const BackwardKernel& kernel = kernel_of(*step.row);
    const BackwardShape& shape = kernel.shape;
    BackwardEffort effort;
    effort.columns = 3 * shape.head_dim + 2 * shape.head_dim_v;
    effort.reached =
        (shape.tile_n >= 128 ? kReached : kReachedNarrow) * (kernel.has_modifiers ? kReachedOfModifiers : 1.0);
    effort.filled = static_cast<double>(blocks_of(key_tile_map(step, shape.tile_n))) /
                    (device.cuda.num_multiprocessors * shape.min_blocks);
    return backward_seconds(step, device, effort);
}

HeadDims backward_dims(const Step& step) {
    HeadDims dims = dims_of(step);
    const auto allowed = [&](Arg arg) { return allows_vectors(step.problem[arg]); };
    dims.vector_k = allowed(Arg::kK) && allowed(Arg::kGradK);
    dims.vector_v = allowed(Arg::kV) && allowed(Arg::kGradV);
    dims.vector_o = allowed(Arg::kGradO);
    return dims;
}

Status clear(void* to, int64_t bytes, const Arguments& arguments) {
    return memory_functions().fill(arguments.device, to, 0, bytes, arguments.stream);
}

Status launch(const Step& step, const Arguments& arguments) {
    const BackwardKernel& kernel = kernel_of(*step.row);
    BackwardParams params = backward_params(step, arguments);
    params.dims = backward_dims(step);
    params.tiles = key_tile_map(step, kernel.shape.tile_n);
    params.score_scale = score_scale_of(step, kernel.has_modifiers);
    params.scratch.dq = arguments.at<float>(step.block("dq"));
    if (step.num_splits > 1) {
        params.scratch.dk = arguments.at<float>(step.block("dk"));
        params.scratch.dv = arguments.at<float>(step.block("dv"));
    }
    Status status;
    if (step.problem.exec.deterministic) {
        params.scratch.order = arguments.at<int32_t>(step.block("order"));
        status = clear(params.scratch.order, order_entries(step) * int64_t{sizeof(int32_t)}, arguments);
    }
    if (status.ok()) status = launch_bwd_prologue(params, step, arguments);
    if (status.ok() && stores_grad_bias(step.problem, step.sizes)) {
        const TensorDesc& tensor = step.problem[Arg::kGradBias];
        status = clear(params.grad.bias.data, tensor.num_elements() * size_of(tensor.dtype), arguments);
    } else if (status.ok()) {
        status = launch_f32_bias(params, step, arguments);
        params.grad.bias = {};
    }
    const LaunchShape launch_shape = {blocks_of(params.tiles), kernel.num_threads, kernel.shared_bytes};
    if (status.ok()) status = launch_kernel(kernel.name, kernel.entry(), launch_shape, &params, arguments);
    return status.ok() ? launch_bwd_epilogue(params, step, arguments) : status;
}

}  // namespace

#define TILEWISE_SM80_FORWARD(name, ...)
#define TILEWISE_SM80_DECODE(name, ...)
#define TILEWISE_SM80_BACKWARD(name, ...) const void* name##_entry();
#include "cuda/sm80/kernels.inc"
#undef TILEWISE_SM80_BACKWARD

void register_backward_rows(Registry& registry) {
    static const BackwardKernel kernels[] = {
#define TILEWISE_SM80_BACKWARD(name, ...) tile_kernel<BackwardTraits<__VA_ARGS__>>(#name, name##_entry),
#include "cuda/sm80/kernels.inc"
#undef TILEWISE_SM80_FORWARD
#undef TILEWISE_SM80_DECODE
#undef TILEWISE_SM80_BACKWARD
    };
    for (const BackwardKernel& kernel : kernels) {
        KernelRow row = tile_kernel_row(kernel, Op::kBackward);
        row.max_head_dim_v = kernel.shape.head_dim_v;
        row.refuse = refuse;
        row.layout = layout;
        row.cost = cost;
        row.launch = launch;
        registry.add(std::move(row));
    }
}

}  // namespace tilewise::cuda::sm80
