// The oracle's backward pass: q, k, v, grad_o, grad_lse -> grad_q, grad_k, grad_v and, on request, grad_bias, grad_sink. With P the
// probabilities, D the dropout factor (0 or 1 / (1 - p)) and s the final score of a pair:
//
//   dP = D * (dO . v);   delta = sum_j P dP;   ds = P (dP - delta + dlse);   dsink = P_sink (dlse - delta)
//   dq += ds * ds/d(q.k) * k;   dk += ds * ds/d(q.k) * q;   dv += D * P * dO;   dbias += ds
//
// A task is one key-value head of one sequence: the query heads that share it add into one double accumulator, which is rounded once.
// Every gradient is filled with zeros first, so rows of no sequence, padding and unseen keys need no case of their own. A bias
// gradient sums over heads and sequences into one buffer, so with it everything runs on one thread.
#include <algorithm>

#include "core/workspace.hpp"
#include "cpu/parallel.hpp"
#include "cpu/reference.hpp"
#include "cpu/reference_row.hpp"
#include "cpu/threads.hpp"

namespace tilewise::cpu {

namespace {

struct Gradients {
    HeadTensor grad_o, grad_q, grad_k, grad_v;
    RowTensor grad_lse;
    PairTensor bias_sums;         // double, axes of size 1 have stride 0; not given: no data
    double* sink_sums = nullptr;  // (batch, num_heads_q)
};

struct BackwardScratch {
    std::span<VisibleKey> keys;
    std::span<double> q, grad_o, grad_q;     // one row each
    std::span<double> key_sums, value_sums;  // (max_seqlen_k, head_dim), (max_seqlen_k, head_dim_v)
};

int64_t accumulators_of(const Sizes& sizes) { return (sizes.max_seqlen_k + 2) * (sizes.head_dim + sizes.head_dim_v); }

BackwardScratch backward_scratch(const Step& step, const Arguments& arguments, int worker) {
    const auto num_keys = static_cast<size_t>(step.sizes.max_seqlen_k);
    const auto head_dim = static_cast<size_t>(step.sizes.head_dim);
    const auto head_dim_v = static_cast<size_t>(step.sizes.head_dim_v);
    auto* keys = arguments.at<VisibleKey>(step.block("scores")) + static_cast<size_t>(worker) * num_keys;
    double* next = arguments.at<double>(step.block("accumulators")) + worker * accumulators_of(step.sizes);
    const auto take = [&next](size_t count) {
        const std::span<double> taken(next, count);
        next += count;
        return taken;
    };
    BackwardScratch scratch;
    scratch.keys = {keys, num_keys};
    scratch.q = take(head_dim);
    scratch.grad_o = take(head_dim_v);
    scratch.grad_q = take(head_dim);
    scratch.key_sums = take(num_keys * head_dim);
    scratch.value_sums = take(num_keys * head_dim_v);
    return scratch;
}

void add_scaled(std::span<double> sums, double factor, std::span<const double> values) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += factor * values[i];
}

// One row, after its q, grad_o and softmax are known.
void backward_row(const HeadContext& context, const Gradients& gradients, int32_t row, const RowSoftmax& softmax,
                  const BackwardScratch& scratch) {
    const View& view = *context.view;
    const Sequence& sequence = context.sequence;
    const auto factor_of = [&](const VisibleKey& key) { return key.keep ? context.keep_scale : 0.0; };
    double delta = 0.0;
    for (const VisibleKey& visible : softmax.keys)
        delta += visible.p * factor_of(visible) * dot_key_row(context, view.v, visible.key, scratch.grad_o);
    double grad_lse = 0.0;
    if (gradients.grad_lse.given())
        grad_lse = load_element(gradients.grad_lse.data, gradients.grad_lse.dtype,
                                gradients.grad_lse.offset(sequence.q_batch, context.head_q, sequence.q_row + row));
    for (const VisibleKey& visible : softmax.keys) {
        const auto key = static_cast<size_t>(visible.key);
        const double grad_p = factor_of(visible) * dot_key_row(context, view.v, visible.key, scratch.grad_o);
        const double grad_s = visible.p * (grad_p - delta + grad_lse);
        const double grad_product = grad_s * score_derivative<double>(context.modifier, visible.product);
        add_key_row(context, view.k, visible.key, grad_product, scratch.grad_q);
        add_scaled(scratch.key_sums.subspan(key * scratch.q.size(), scratch.q.size()), grad_product, scratch.q);
        add_scaled(scratch.value_sums.subspan(key * scratch.grad_o.size(), scratch.grad_o.size()),
                   factor_of(visible) * visible.p, scratch.grad_o);
        if (const PairTensor& sums = gradients.bias_sums; sums.given())
            static_cast<double*>(sums.data)[sums.offset(context.batch, context.head_q, row, visible.key)] += grad_s;
    }
    if (gradients.sink_sums != nullptr)
        gradients.sink_sums[context.batch * view.sizes.num_heads_q + context.head_q] +=
            softmax.sink_p * (grad_lse - delta);
}

void backward_head(const HeadContext& context, const Gradients& gradients, const BackwardScratch& scratch) {
    for (int32_t row = 0; row < context.sequence.seqlen_q; ++row) {
        load_query_row(context, context.view->q, row, scratch.q);
        const RowSoftmax softmax = row_softmax(context, row, scratch.q, scratch.keys);
        if (softmax.lse == static_cast<double>(negative_infinity())) continue;
        load_query_row(context, gradients.grad_o, row, scratch.grad_o);
        std::fill(scratch.grad_q.begin(), scratch.grad_q.end(), 0.0);
        backward_row(context, gradients, row, softmax, scratch);
        store_query_row(context, gradients.grad_q, row, scratch.grad_q);
    }
}

// sums: (seqlen_k, dim) -> the rows of a sequence's keys in grad_k or grad_v.
void store_key_sums(const HeadContext& context, const HeadTensor& tensor, size_t dim, std::span<const double> sums) {
    const Sequence& sequence = context.sequence;
    for (int32_t key = 0; key < sequence.seqlen_k; ++key) {
        int64_t offset = tensor.offset(sequence.k_batch, sequence.first_key + key, context.head_kv);
        for (const double sum : sums.subspan(static_cast<size_t>(key) * dim, dim)) {
            store_element(tensor.data, tensor.dtype, offset, sum);
            offset += tensor.dim_stride;
        }
    }
}

void backward_group(const View& view, const Gradients& gradients, int64_t task, const BackwardScratch& scratch) {
    const int64_t ratio = view.sizes.gqa_ratio();
    const int64_t batch = task / view.sizes.num_heads_kv, head_kv = task % view.sizes.num_heads_kv;
    std::fill(scratch.key_sums.begin(), scratch.key_sums.end(), 0.0);
    std::fill(scratch.value_sums.begin(), scratch.value_sums.end(), 0.0);
    for (int64_t head_q = head_kv * ratio; head_q < (head_kv + 1) * ratio; ++head_q)
        backward_head(head_context(view, batch, head_q), gradients, scratch);
    const HeadContext context = head_context(view, batch, head_kv * ratio);
    store_key_sums(context, gradients.grad_k, scratch.q.size(), scratch.key_sums);
    store_key_sums(context, gradients.grad_v, scratch.grad_o.size(), scratch.value_sums);
}

// Calls visit(offset in the tensor, index in a contiguous one) for every element.
template <class Visit> void for_each_element(const TensorDesc& tensor, Visit&& visit) {
    for (int64_t index = 0, count = tensor.num_elements(); index < count; ++index) {
        int64_t rest = index, offset = 0;
        for (int axis = tensor.rank - 1; axis >= 0; --axis) {
            offset += rest % tensor.dim(axis) * tensor.step(axis);
            rest /= tensor.dim(axis);
        }
        visit(offset, index);
    }
}

void fill_with_zeros(const Step& step, const Arguments& arguments) {
    for (const Arg arg : {Arg::kGradQ, Arg::kGradK, Arg::kGradV}) {
        const TensorDesc& tensor = step.problem[arg];
        void* data = pointer_of(step, arguments, arg);
        if (tensor.given())
            for_each_element(tensor, [&](int64_t offset, int64_t) { store_element(data, tensor.dtype, offset, 0.0); });
    }
}

Gradients gradients_of(const Step& step, const Arguments& arguments) {
    Gradients gradients;
    gradients.grad_o = head_tensor(step, arguments, Arg::kGradO);
    gradients.grad_q = head_tensor(step, arguments, Arg::kGradQ);
    gradients.grad_k = head_tensor(step, arguments, Arg::kGradK);
    gradients.grad_v = head_tensor(step, arguments, Arg::kGradV);
    gradients.grad_lse = row_tensor(step, arguments, Arg::kGradLse);
    if (const TensorDesc& bias = step.problem[Arg::kGradBias]; bias.given()) {
        auto* sums = arguments.at<double>(step.block("bias_sums"));
        std::fill_n(sums, bias.num_elements(), 0.0);
        const int64_t keys = bias.dim(3), rows = bias.dim(2) * keys, heads = bias.dim(1) * rows;
        gradients.bias_sums = {sums,
                               DType::kF64,
                               bias.dim(0) == 1 ? 0 : heads,
                               bias.dim(1) == 1 ? 0 : rows,
                               bias.dim(2) == 1 ? 0 : keys,
                               keys == 1 ? 0 : 1};
    }
    if (step.problem.has(Arg::kGradSink)) {
        gradients.sink_sums = arguments.at<double>(step.block("sink_sums"));
        std::fill_n(gradients.sink_sums, step.sizes.batch * step.sizes.num_heads_q, 0.0);
    }
    return gradients;
}

void store_shared_sums(const Step& step, const Arguments& arguments, const Gradients& gradients) {
    if (const TensorDesc& bias = step.problem[Arg::kGradBias]; bias.given()) {
        void* data = pointer_of(step, arguments, Arg::kGradBias);
        const auto* sums = static_cast<const double*>(gradients.bias_sums.data);
        for_each_element(bias,
                         [&](int64_t offset, int64_t index) { store_element(data, bias.dtype, offset, sums[index]); });
    }
    if (const TensorDesc& sink = step.problem[Arg::kGradSink]; sink.given()) {
        void* data = pointer_of(step, arguments, Arg::kGradSink);
        for (int64_t head = 0; head < step.sizes.num_heads_q; ++head) {
            double sum = 0.0;
            for (int64_t batch = 0; batch < step.sizes.batch; ++batch)
                sum += gradients.sink_sums[batch * step.sizes.num_heads_q + head];
            store_element(data, sink.dtype, head * sink.step(0), sum);
        }
    }
}

}  // namespace

void layout_reference_backward(Step& step, const DeviceInfo& device) {
    const Sizes& sizes = step.sizes;
    const bool shared_sums = step.problem.has(Arg::kGradBias);
    step.num_threads = shared_sums ? 1 : threads_up_to(sizes.batch * sizes.num_heads_kv, step, device);
    WorkspaceLayout layout(step.workspace_base);
    layout.add("scores", step.num_threads * sizes.max_seqlen_k * int64_t{sizeof(VisibleKey)});
    layout.add("accumulators", step.num_threads * accumulators_of(sizes) * int64_t{sizeof(double)});
    if (shared_sums) layout.add("bias_sums", step.problem[Arg::kGradBias].num_elements() * int64_t{sizeof(double)});
    if (step.problem.has(Arg::kGradSink))
        layout.add("sink_sums", sizes.batch * sizes.num_heads_q * int64_t{sizeof(double)});
    step.workspace = layout.take_blocks();
}

Status launch_reference_backward(const Step& step, const Arguments& arguments) {
    const View view = make_view(step, arguments);
    fill_with_zeros(step, arguments);
    const Gradients gradients = gradients_of(step, arguments);
    if (step.sizes.num_heads_q == 0) return {};
    parallel_for(step.sizes.batch * step.sizes.num_heads_kv, step.num_threads, [&](int64_t task, int worker) noexcept {
        backward_group(view, gradients, task, backward_scratch(step, arguments, worker));
    });
    store_shared_sums(step, arguments, gradients);
    return {};
}

}  // namespace tilewise::cpu
