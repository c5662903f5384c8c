// Host side of the merge of partial outputs; see combine.hpp and, for the kernel, combine.cu.
#include "cuda/shared/combine.hpp"

#include "core/validate.hpp"
#include "core/view.hpp"
#include "cuda/common/launch.hpp"
#include "cuda/common/row.hpp"
#include "cuda/shared/combine_params.hpp"
#include "cuda/shared/vectors.hpp"

namespace tilewise::cuda {

namespace {

// From so many parts on, the warps of a block share one row.
constexpr int64_t kPartsToShare = 8;

Parts parts_of(const Step& step, const Arguments& arguments) {
    const TensorDesc& o = step.problem[Arg::kPartialO];
    const TensorDesc& lse = step.problem[Arg::kPartialLse];
    const int last = o.rank - 1, last_lse = lse.rank - 1;
    Parts parts;
    parts.o.data = pointer_of(step, arguments, Arg::kPartialO);
    parts.o.dtype = o.dtype;
    parts.o.batch_stride = o.rank == 5 ? stride_of(o, 1) : 0;
    parts.o.row_stride = stride_of(o, last - 2);
    parts.o.head_stride = stride_of(o, last - 1);
    parts.o.dim_stride = stride_of(o, last);
    parts.lse.data = pointer_of(step, arguments, Arg::kPartialLse);
    parts.lse.dtype = lse.dtype;
    parts.lse.batch_stride = lse.rank == 4 ? stride_of(lse, 1) : 0;
    parts.lse.head_stride = stride_of(lse, last_lse - 1);
    parts.lse.row_stride = stride_of(lse, last_lse);
    parts.o_stride = stride_of(o, 0);
    parts.lse_stride = stride_of(lse, 0);
    parts.count = o.dim(0);
    return parts;
}

Parts parts_of(const PartialOutput& partial, const Sizes& sizes, int32_t num_splits) {
    const int64_t heads = sizes.num_heads_q, width = sizes.head_dim_v;
    Parts parts;
    parts.o = {partial.o, DType::kF32, partial.rows_per_batch * heads * width, heads * width, width, 1};
    parts.lse = {partial.lse, DType::kF32, partial.rows_per_batch * heads, 1, heads};
    parts.o_stride = partial.num_rows * width;
    parts.lse_stride = partial.num_rows;
    parts.count = num_splits;
    return parts;
}

// Everything but parts, sink and lengths is set here.
Status run(CombineParams& params, const Step& step, bool vector_parts, const Arguments& arguments) {
    const Sizes& sizes = step.sizes;
    const DType dtype = params.parts.o.dtype;
    const int32_t columns = combine_columns(dtype, vector_parts);
    params.o = head_tensor(step, arguments, Arg::kO);
    params.lse = row_tensor(step, arguments, Arg::kLse);
    params.num_heads = static_cast<int32_t>(sizes.num_heads_q);
    params.head_dim_v = static_cast<int32_t>(sizes.head_dim_v);
    params.num_chunks = static_cast<int32_t>(ceil_div(sizes.head_dim_v, columns));
    params.warps_of_unit = params.parts.count >= kPartsToShare ? kCombineWarps : 1;
    const int bytes_of_lane = columns / 32 * static_cast<int>(size_of(params.o.dtype));
    params.vector_o = allows_access_of(step.problem[Arg::kO], min_of(bytes_of_lane, 16));
    const int64_t units = params.tokens.count * sizes.num_heads_q * params.num_chunks;
    const LaunchShape shape{params.warps_of_unit == 1 ? ceil_div(units, kCombineWarps) : units, kCombineThreads, 0};
    return launch_kernel("combine", combine_entry(dtype, vector_parts), shape, &params, arguments);
}

Status launch_combine(const Step& step, const Arguments& arguments) {
    CombineParams params;
    params.parts = parts_of(step, arguments);
    params.tokens = {{}, step.sizes.max_seqlen_q, step.sizes.total_q, step.sizes.batch};
    return run(params, step, allows_vectors(step.problem[Arg::kPartialO]), arguments);
}

}  // namespace

KernelRow combine_row() {
    KernelRow row = cuda_row("cuda_combine", Op::kCombine, {DType::kF32, DType::kF16, DType::kBF16});
    row.launch = launch_combine;
    return row;
}

Status merge_splits(const ForwardParams& params, const Step& step, const Arguments& arguments) {
    const Sizes& sizes = params.view.sizes;
    CombineParams combine;
    combine.parts = parts_of(params.partial, sizes, params.tiles.num_splits);
    combine.sink = params.view.score.sink;
    combine.tokens = query_tokens(params.view);
    combine.seqused_q = params.view.sequences.seqused_q;
    // The workspace is 64-byte aligned, so only the width decides.
    return run(combine, step, sizes.head_dim_v % 4 == 0, arguments);
}

}  // namespace tilewise::cuda
