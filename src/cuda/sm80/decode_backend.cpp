// Plans and launches the forward of few queries on many keys; the kernels are in decode.cuh and, for one token a sequence, decode_token.cuh,
// their list in kernels.inc. The kernels merge their splits themselves, so a call is one launch.
#include "cuda/sm80/decode_backend.hpp"

#include <fmt/format.h>

#include "core/cost.hpp"
#include "core/validate.hpp"
#include "cuda/common/launch.hpp"
#include "cuda/sm80/decode_plan.hpp"
#include "cuda/sm80/decode_token_backend.hpp"
#include "cuda/shared/parts.hpp"

namespace tilewise::cuda::sm80 {

namespace {

struct DecodeKernel {
    const char* name = nullptr;
    DType dtype = DType::kNone;
    DecodeShape shape = {};
    DecodeKernelNumbers numbers;
    int32_t num_threads = 0;
    const void* (*entry)() = nullptr;
};

const DecodeKernel& kernel_of(const KernelRow& row) { return *static_cast<const DecodeKernel*>(row.kernel); }

// Each tile of 16 rows reads all keys again.
constexpr int64_t kMostPackedRows = 4 * kDecodeTileM;

std::string refuse(const KernelRow& row, const Problem& problem, const DeviceInfo& device) {
    const DecodeKernel& kernel = kernel_of(row);
    const Sizes sizes = sizes_of(problem);
    const int64_t rows = sizes.max_seqlen_q * sizes.gqa_ratio();
    if (rows > kMostPackedRows)
        return fmt::format("q: {} rows of {} query heads share a key head; it serves up to {} rows", rows,
                           sizes.gqa_ratio(), kMostPackedRows);
    if (kernel.numbers.one_token)
        if (std::string reason = token_refusal(problem); !reason.empty()) return reason;
    if (problem.score.dropout_p > 0) return "dropout_p: it has no dropout";
    if (problem.exec.batch_invariant) return "batch_invariant: whether it pays depends on the batch";
    return shared_memory_refusal(kernel.numbers.shared_bytes, device);
}

// Tiles of a ragged batch count queries; where each sequence has one, a batch is a batch.
bool has_ragged_tiles(const Step& step) {
    return step.problem.has(Arg::kCuSeqlensQ) && !kernel_of(*step.row).numbers.one_token;
}

DecodeInput input_of(const Step& step) {
    DecodeInput input;
    input.sizes = step.sizes;
    const double rows = static_cast<double>(std::max<int64_t>(step.sizes.total_q, 1));
    const double seen = visible_pairs(step.problem, step.sizes) / rows;
    input.visible_keys = std::clamp<int64_t>(static_cast<int64_t>(seen), 0, step.sizes.max_seqlen_k);
    input.ragged_q = has_ragged_tiles(step);
    input.lengths_vary =
        step.problem.has(Arg::kSequsedK) || step.problem.has(Arg::kCuSeqlensK) || step.problem.has(Arg::kPageTable);
    input.num_splits = step.problem.exec.num_splits;
    return input;
}

void layout(Step& step, const DeviceInfo& device) {
    const DecodeKernel& kernel = kernel_of(*step.row);
    const DecodePlan plan = plan_decode(input_of(step), kernel.numbers, device.cuda);
    step.tiling = {kDecodeTileM, kernel.shape.tile_n, kernel.shape.num_stages};
    step.tiling.packed_heads = decode_packed_heads(step.sizes, has_ragged_tiles(step));
    step.tiling.min_split_keys = plan.min_split_keys;
    step.tiling.clustered = plan.clustered;
    step.num_splits = plan.num_splits;
    WorkspaceLayout layout(step.workspace_base);
    if (step.num_splits > 1) {
        add_partial_blocks(layout, step);
        layout.add("counters", plan.num_tiles * int64_t{sizeof(uint64_t)});
    }
    step.workspace = layout.take_blocks();
}

double cost(const Step& step, const DeviceInfo& device) {
    const DecodeKernel& kernel = kernel_of(*step.row);
    const double columns =
        static_cast<double>(ceil_div(std::max<int64_t>(step.sizes.head_dim_v, 1), kernel.shape.head_dim_v));
    // Zero columns cost no bytes, but instructions.
    const double wide = static_cast<double>(kernel.shape.head_dim + kernel.shape.head_dim_v) /
                        static_cast<double>(std::max<int64_t>(step.sizes.head_dim + step.sizes.head_dim_v, 1));
    return plan_decode(input_of(step), kernel.numbers, device.cuda).seconds * columns *
           (1 + 0.1 * std::max(wide - 1, 0.0));
}

Status launch(const Step& step, const Arguments& arguments) {
    const DecodeKernel& kernel = kernel_of(*step.row);
    const Problem& problem = step.problem;
    ForwardParams params;
    params.view = make_attention_view(step, arguments);
    params.tiles = decode_tiles(step.sizes, has_ragged_tiles(step));
    params.tiles.num_splits = step.num_splits;
    params.score_scale = score_scale_of(step, modifier_of(problem) != nullptr);
    if (step.num_splits > 1) {
        params.partial = partial_output(step, arguments);
        params.partial.counters = arguments.at<uint64_t>(step.block("counters"));
        params.partial.min_split_keys = step.tiling.min_split_keys;
    }
    const auto launch_columns = [&](bool clustered) {
        const int32_t cluster_blocks = clustered ? step.num_splits : 1;
        const LaunchShape shape = {decode_num_tiles(params.tiles) * step.num_splits, kernel.num_threads,
                                   decode_shared_bytes(kernel.numbers, cluster_blocks), cluster_blocks};
        if (!kernel.numbers.one_token) return launch_kernel(kernel.name, kernel.entry(), shape, &params, arguments);
        const TokenParams token = token_params_of(params, kernel.numbers.unit_keys, clustered);
        return launch_kernel(kernel.name, kernel.entry(), shape, &token, arguments);
    };
    return for_each_columns(dims_of(step), kernel.shape.head_dim_v, [&](const HeadDims& dims) {
        params.dims = dims;
        Status status = launch_columns(step.tiling.clustered);
        // A GPU that several processes use has been seen to refuse a cluster for want of room; counters need none.
        return step.tiling.clustered && !status.ok() ? launch_columns(false) : status;
    });
}

template <class Traits> DecodeKernel kernel_from(const char* name, const void* (*entry)()) {
    return {name, Element<typename Traits::Element>::kType, Traits::kShape, decode_numbers<Traits>(), Traits::kThreads,
            entry};
}

}  // namespace

#define TILEWISE_SM80_FORWARD(name, ...)
#define TILEWISE_SM80_BACKWARD(name, ...)
#define TILEWISE_SM80_DECODE(name, ...) const void* name##_entry();
#include "cuda/sm80/kernels.inc"
#undef TILEWISE_SM80_DECODE

void register_decode_rows(Registry& registry) {
    static const DecodeKernel kernels[] = {
#define TILEWISE_SM80_DECODE(name, ...) kernel_from<DecodeTraits<__VA_ARGS__>>(#name, name##_entry),
#include "cuda/sm80/kernels.inc"
#undef TILEWISE_SM80_FORWARD
#undef TILEWISE_SM80_BACKWARD
#undef TILEWISE_SM80_DECODE
    };
    for (const DecodeKernel& kernel : kernels) {
        KernelRow row = cuda_row(kernel.name, Op::kForward, {kernel.dtype});
        row.max_head_dim = kernel.shape.head_dim;
        row.features = kernel.numbers.one_token ? "one query a sequence: all but softcap, ALiBi, bias, mask, dropout"
                                                : "all but dropout; up to 64 rows a key head";
        row.kernel = &kernel;
        row.refuse = refuse;
        row.layout = layout;
        row.cost = cost;
        row.launch = launch;
        registry.add(std::move(row));
    }
}

}  // namespace tilewise::cuda::sm80
