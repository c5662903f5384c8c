// Host side of append; see append.hpp.
#include "cuda/shared/append.hpp"

#include "core/validate.hpp"
#include "core/view.hpp"
#include "cuda/common/launch.hpp"
#include "cuda/common/row.hpp"
#include "cuda/shared/append_params.hpp"

namespace tilewise::cuda {

namespace {

RotaryTable table_of(const Step& step, const Arguments& arguments, Arg arg) {
    const TensorDesc& t = step.problem[arg];
    return {pointer_of(step, arguments, arg), stride_of(t, 0), stride_of(t, 1)};
}

Rotary rotary_of(const Step& step, const Arguments& arguments) {
    const TensorDesc& cos = step.problem[Arg::kRotaryCos];
    if (!cos.given()) return {};
    Rotary rotary;
    rotary.cos = table_of(step, arguments, Arg::kRotaryCos);
    rotary.sin = table_of(step, arguments, Arg::kRotarySin);
    rotary.dtype = cos.dtype;
    rotary.dim = static_cast<int32_t>(2 * cos.dim(1));
    rotary.interleaved = step.problem.exec.rotary_interleaved;
    rotary.rotates_by_row = is_positional(step.problem.mask);
    rotary.num_positions = cos.dim(0);
    return rotary;
}

Tokens new_tokens(const Step& step, const Arguments& arguments) {
    const TensorDesc& k_new = step.problem[Arg::kKNew];
    if (k_new.rank == 3) return {int_vector(step, arguments, Arg::kCuSeqlensKNew), 0, k_new.dim(0), step.sizes.batch};
    return {{}, k_new.dim(1), k_new.dim(0) * k_new.dim(1), step.sizes.batch};
}

AppendParams params_of(const Step& step, const Arguments& arguments) {
    const Problem& problem = step.problem;
    AppendParams params;
    params.view = make_attention_view(step, arguments);
    params.k_new = head_tensor(step, arguments, Arg::kKNew);
    params.v_new = head_tensor(step, arguments, Arg::kVNew);
    params.q_rotated = head_tensor(step, arguments, Arg::kQRotated);
    params.new_tokens = new_tokens(step, arguments);
    if (problem.has(Arg::kQRotated)) params.query_tokens = query_tokens(params.view);
    params.lengths.cache_seqlens = int_vector(step, arguments, Arg::kCacheSeqlens);
    params.lengths.rotary_seqlens = int_vector(step, arguments, Arg::kRotarySeqlens);
    params.lengths.total_seqlens = static_cast<int32_t*>(pointer_of(step, arguments, Arg::kTotalSeqlens));
    params.limits.capacity = step.sizes.max_seqlen_k;
    params.limits.cache_rows = problem[problem.has(Arg::kPageTable) ? Arg::kPageTable : Arg::kK].dim(0);
    params.limits.num_pages = problem[Arg::kK].dim(0);
    params.rotary = rotary_of(step, arguments);
    params.error_flag = static_cast<int32_t*>(pointer_of(step, arguments, Arg::kErrorFlag));
    return params;
}

Status launch_append(const Step& step, const Arguments& arguments) {
    const AppendParams params = params_of(step, arguments);
    const int64_t warps = params.new_tokens.count * step.sizes.num_heads_kv +
                          params.query_tokens.count * step.sizes.num_heads_q +
                          ceil_div(params.new_tokens.num_sequences, 32);
    return launch_kernel("append", append_entry(step.problem[Arg::kKNew].dtype),
                         {ceil_div(warps, kAppendThreads / 32), kAppendThreads, 0}, &params, arguments);
}

}  // namespace

KernelRow append_row() {
    KernelRow row = cuda_row("cuda_append", Op::kAppend, {DType::kF32, DType::kF16, DType::kBF16});
    row.launch = launch_append;
    return row;
}

}  // namespace tilewise::cuda
