// The oracle's forward pass: q (b, sq, h, d), k (b, sk, hk, d), v (b, sk, hk, dv) -> o (b, sq, h, dv), lse (b, h, sq), ragged and paged
// likewise. A task is one query head of one sequence; each thread has one row of scores and one row of output as scratch.
// Rows that belong to no sequence (past seqused_q, past cu_seqlens_q[-1]) are not written.
#include <algorithm>

#include "core/workspace.hpp"
#include "cpu/parallel.hpp"
#include "cpu/reference.hpp"
#include "cpu/reference_row.hpp"
#include "cpu/threads.hpp"

namespace tilewise::cpu {

namespace {

struct ForwardScratch {
    std::span<VisibleKey> keys;
    std::span<double> q;
    std::span<double> o;
};

ForwardScratch forward_scratch(const Step& step, const Arguments& arguments, int worker) {
    const auto num_keys = static_cast<size_t>(step.sizes.max_seqlen_k);
    const auto head_dim = static_cast<size_t>(step.sizes.head_dim);
    const auto head_dim_v = static_cast<size_t>(step.sizes.head_dim_v);
    const auto index = static_cast<size_t>(worker);
    auto* keys = arguments.at<VisibleKey>(step.block("scores"));
    auto* rows = arguments.at<double>(step.block("rows")) + index * (head_dim + head_dim_v);
    return {{keys + index * num_keys, num_keys}, {rows, head_dim}, {rows + head_dim, head_dim_v}};
}

void forward_head(const HeadContext& context, const ForwardScratch& scratch) {
    const View& view = *context.view;
    const Sequence& sequence = context.sequence;
    for (int32_t row = 0; row < sequence.seqlen_q; ++row) {
        load_query_row(context, view.q, row, scratch.q);
        const RowSoftmax softmax = row_softmax(context, row, scratch.q, scratch.keys);
        std::fill(scratch.o.begin(), scratch.o.end(), 0.0);
        if (softmax.lse != static_cast<double>(negative_infinity()))
            for (const VisibleKey& visible : softmax.keys)
                add_key_row(context, view.v, visible.key, visible.p * (visible.keep ? context.keep_scale : 0.0),
                            scratch.o);
        store_query_row(context, view.o, row, scratch.o);
        if (view.lse.given())
            store_element(view.lse.data, view.lse.dtype,
                          view.lse.offset(sequence.q_batch, context.head_q, sequence.q_row + row), softmax.lse);
    }
}

}  // namespace

std::string refuse_reference(const KernelRow&, const Problem& problem, const DeviceInfo&) {
    if (problem.exec.num_splits > 1)
        return "num_splits: " + std::to_string(problem.exec.num_splits) +
               "; the reference does not split keys, allowed are 0 and 1";
    return {};
}

void layout_reference_forward(Step& step, const DeviceInfo& device) {
    step.num_threads = threads_up_to(step.sizes.batch * step.sizes.num_heads_q, step, device);
    const int64_t row_bytes = (step.sizes.head_dim + step.sizes.head_dim_v) * int64_t{sizeof(double)};
    WorkspaceLayout layout(step.workspace_base);
    layout.add("scores", step.num_threads * step.sizes.max_seqlen_k * int64_t{sizeof(VisibleKey)});
    layout.add("rows", step.num_threads * row_bytes);
    step.workspace = layout.take_blocks();
}

double cost_reference(const Step& step, const DeviceInfo&) {
    // About 2 ns for each multiply and add; the constant keeps tiny problems away from here as well.
    const Sizes& sizes = step.sizes;
    const double pairs = static_cast<double>(sizes.total_q) * static_cast<double>(sizes.num_heads_q) *
                         static_cast<double>(sizes.max_seqlen_k);
    const double passes = step.problem.op == Op::kBackward ? 2.5 : 1.0;
    const double products = pairs * passes * static_cast<double>(sizes.head_dim + sizes.head_dim_v);
    return 1e-3 + 2e-9 * products / static_cast<double>(step.num_threads);
}

Status launch_reference_forward(const Step& step, const Arguments& arguments) {
    const View view = make_view(step, arguments);
    const int64_t heads = step.sizes.num_heads_q;
    parallel_for(step.sizes.batch * heads, step.num_threads, [&](int64_t task, int worker) noexcept {
        forward_head(head_context(view, task / heads, task % heads), forward_scratch(step, arguments, worker));
    });
    return {};
}

}  // namespace tilewise::cpu
