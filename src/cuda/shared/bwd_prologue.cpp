// Host side of the backward's prologue; see bwd_prologue.hpp.
#include "cuda/shared/bwd_prologue.hpp"

#include <algorithm>

#include "core/view.hpp"
#include "cuda/common/launch.hpp"
#include "cuda/shared/bwd_params.hpp"
#include "cuda/shared/vectors.hpp"

namespace tilewise::cuda {

namespace {

constexpr const char* kSinkBlock = "grad_sink_sums";

int64_t blocks_of_rows(int64_t rows, int32_t lanes) { return ceil_div(rows, kBackwardRowThreads / lanes); }

Status launch_rows(const BackwardParams& params, const Step& step, const Arguments& arguments) {
    const Sizes& sizes = params.view.sizes;
    const DType dtype = step.problem[Arg::kO].dtype;
    const bool vector = allows_vectors(step.problem[Arg::kO]) && allows_vectors(step.problem[Arg::kGradO]);
    const int of_access = vector ? 16 / static_cast<int>(size_of(dtype)) : 1;
    const PrologueParams prologue{params, query_tokens(params.view), lanes_of_row(sizes.head_dim_v, of_access)};
    const int64_t rows = prologue.tokens.count * sizes.num_heads_q;
    return launch_kernel("bwd_prologue", prologue_entry(dtype, vector),
                         {blocks_of_rows(rows, prologue.lanes_of_row), kBackwardRowThreads, 0}, &prologue, arguments);
}

}  // namespace

Status launch_bwd_key_prologue(const BackwardParams& params, const Arguments& arguments) {
    const SequenceTable& table = params.view.sequences;
    const bool any_unused = table.cu_seqlens_k.given() || table.seqused_k.given() || table.leftpad_k.given();
    if (!any_unused && params.scratch.dk == nullptr && params.scratch.dv == nullptr) return {};
    const KeyPrologueParams prologue{params, key_tokens(params.view), any_unused};
    const int64_t rows = prologue.tokens.count * params.view.sizes.num_heads_kv;
    return launch_kernel("bwd_key_prologue", key_prologue_entry(), {blocks_of_rows(rows, 32), kBackwardRowThreads, 0},
                         &prologue, arguments);
}

Status launch_grad_sink(const BackwardParams& params, int64_t num_rows, const Step& step, const Arguments& arguments) {
    const TensorDesc& tensor = step.problem[Arg::kGradSink];
    if (!tensor.given()) return {};
    const Sizes& sizes = params.view.sizes;
    SinkParams sink;
    sink.sink = params.view.score.sink;
    sink.delta = params.scratch.delta;
    sink.lse_log2 = params.scratch.lse_log2;
    sink.sums = arguments.at<float>(step.block(kSinkBlock));
    sink.grad_sink = static_cast<float*>(pointer_of(step, arguments, Arg::kGradSink));
    sink.grad_stride = stride_of(tensor, 0);
    sink.num_tokens = num_rows;
    sink.head_rows = std::max<int64_t>(params.scratch.head_rows, 1);
    sink.num_chunks = ceil_div(num_rows, kTokensOfChunk);
    sink.num_heads = static_cast<int32_t>(sizes.num_heads_q);
    const int64_t blocks = sink.num_chunks * sizes.num_heads_q;
    if (Status status =
            launch_kernel("bwd_sink_chunks", sink_chunks_entry(), {blocks, kBackwardRowThreads, 0}, &sink, arguments);
        !status.ok())
        return status;
    return launch_kernel("bwd_sink_total", sink_total_entry(), {sizes.num_heads_q, 32, 0}, &sink, arguments);
}

void add_sink_block(WorkspaceLayout& layout, const Step& step, int64_t num_rows) {
    if (!step.problem.has(Arg::kGradSink)) return;
    const int64_t chunks = ceil_div(num_rows, kTokensOfChunk);
    layout.add(kSinkBlock, chunks * step.sizes.num_heads_q * int64_t{sizeof(float)});
}

Status launch_bwd_prologue(const BackwardParams& params, const Step& step, const Arguments& arguments) {
    if (Status status = launch_rows(params, step, arguments); !status.ok()) return status;
    if (Status status = launch_bwd_key_prologue(params, arguments); !status.ok()) return status;
    return launch_grad_sink(params, params.view.sizes.total_q, step, arguments);
}

}  // namespace tilewise::cuda
