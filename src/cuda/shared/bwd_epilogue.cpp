// Host side of the backward's epilogue; see bwd_epilogue.hpp.
#include "cuda/shared/bwd_epilogue.hpp"

#include "core/view.hpp"
#include "cuda/common/launch.hpp"
#include "cuda/shared/bwd_params.hpp"
#include "cuda/shared/vectors.hpp"

namespace tilewise::cuda {

namespace {

struct Sums {
    const float* from = nullptr;
    Tokens tokens;
    float factor = 1.0f;
    int32_t num_parts = 1;
};

Status store(const Sums& sums, const Step& step, const Arguments& arguments, Arg arg) {
    if (sums.from == nullptr) return {};
    const TensorDesc& tensor = step.problem[arg];
    const bool vector = allows_vectors(tensor);
    const int of_access = vector ? 16 / static_cast<int>(size_of(tensor.dtype)) : 1;
    EpilogueParams params;
    params.from = sums.from;
    params.to = head_tensor(step, arguments, arg);
    params.rows_per_batch = sums.tokens.cu_seqlens.given() ? sums.tokens.count : sums.tokens.rows_per_batch;
    params.num_tokens = sums.tokens.count;
    params.num_heads = static_cast<int32_t>(tensor.dim(tensor.rank - 2));
    params.dim = static_cast<int32_t>(tensor.dim(tensor.rank - 1));
    params.factor = sums.factor;
    params.num_parts = sums.num_parts;
    params.lanes_of_row = lanes_of_row(params.dim, of_access);
    const int64_t blocks = ceil_div(params.num_tokens * params.num_heads, kBackwardRowThreads / params.lanes_of_row);
    return launch_kernel("bwd_epilogue", epilogue_entry(tensor.dtype, vector), {blocks, kBackwardRowThreads, 0},
                         &params, arguments);
}

}  // namespace

Status launch_bwd_epilogue(const BackwardParams& params, const Step& step, const Arguments& arguments) {
    const AttentionView& view = params.view;
    const BackwardScratch& scratch = params.scratch;
    const float scale = view.score.softmax_scale;
    const int32_t parts = params.tiles.num_splits;
    if (Status status = store({scratch.dq, query_tokens(view), scale}, step, arguments, Arg::kGradQ); !status.ok())
        return status;
    if (Status status = store({scratch.dk, key_tokens(view), scale, parts}, step, arguments, Arg::kGradK); !status.ok())
        return status;
    return store({scratch.dv, key_tokens(view), 1.0f, parts}, step, arguments, Arg::kGradV);
}

}  // namespace tilewise::cuda
