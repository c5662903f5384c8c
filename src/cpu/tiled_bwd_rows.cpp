// The parts of the backward pass that go row by row: delta and lse before the tiles, grad_q and grad_sink after them,
// and zeros where no sequence is. See tiled_bwd.hpp.
#include <algorithm>
#include <cmath>

#include "cpu/parallel.hpp"
#include "cpu/tiled_bwd.hpp"

namespace tilewise::cpu {

namespace {

void prepare_block(const Backward& backward, const RowBlock& block) {
    const View& view = backward.view;
    const RowGroup group = group_of(view, block.batch, block.head_kv);
    const Sequence& s = group.sequence;
    const int count = static_cast<int>(std::min<int64_t>(kRowsOfTask, group.num_rows() - block.first_row));
    const RowTensor grad_lse = row_tensor(*backward.step, *view.launch.arguments, Arg::kGradLse);
    void *o[kRowsOfTask], *grad_o[kRowsOfTask];
    float dots[kRowsOfTask];
    query_addresses(group, view.o, block.first_row, count, o);
    query_addresses(group, backward.grad_o, block.first_row, count, grad_o);
    backward.ops->dot_rows(source_of(view.o, o, count, view.sizes.head_dim_v),
                           source_of(backward.grad_o, grad_o, count, view.sizes.head_dim_v), dots);
    for (int i = 0; i < count; ++i) {
        const int64_t head = group.head_of(block.first_row + i), query = group.query_of(block.first_row + i);
        const int64_t index = backward.row_index(s, head, query);
        double delta = static_cast<double>(dots[i]);
        if (grad_lse.given())
            delta -= load_element(grad_lse.data, grad_lse.dtype, grad_lse.offset(s.q_batch, head, s.q_row + query));
        backward.delta[index] = static_cast<float>(delta);
        const double lse =
            load_element(view.lse.data, view.lse.dtype, view.lse.offset(s.q_batch, head, s.q_row + query));
        backward.lse[index] = static_cast<float>(lse);
    }
}

void finish_block(const Backward& backward, const RowBlock& block) {
    const View& view = backward.view;
    const RowGroup group = group_of(view, block.batch, block.head_kv);
    const int count = static_cast<int>(std::min<int64_t>(kRowsOfTask, group.num_rows() - block.first_row));
    const int64_t stride = grad_q_stride(view.sizes, *backward.ops);
    float* sums = backward.grad_q_rows(group, 0) + block.first_row * stride;
    for (int64_t chunk = 1; chunk < backward.step->num_chunks; ++chunk) {
        const float* more = backward.grad_q_rows(group, chunk) + block.first_row * stride;
        for (int64_t i = 0; i < count * stride; ++i) sums[i] += more[i];
    }
    float factor[kRowsOfTask];
    void* addresses[kRowsOfTask];
    std::fill_n(factor, count, softmax_scale_of(backward.step->problem));
    query_addresses(group, backward.grad_q, block.first_row, count, addresses);
    backward.ops->store_rows(sums, stride, factor, target_of(backward.grad_q, addresses, count, view.sizes.head_dim));
}

// Rows [begin, end) of every head.
void clear_rows(const Backward& backward, const HeadTensor& tensor, int64_t batch, Arg shape_of, int64_t begin,
                int64_t end) {
    const TensorDesc& shape = backward.step->problem[shape_of];
    const int64_t heads = shape.dim(shape.rank - 2), dim = shape.dim(shape.rank - 1);
    const float factor = 0.0f;
    const float unread = 0.0f;
    for (int64_t row = begin; row < end; ++row)
        for (int64_t head = 0; head < heads; ++head) {
            void* address =
                static_cast<unsigned char*>(tensor.data) + tensor.offset(batch, row, head) * size_of(tensor.dtype);
            backward.ops->store_rows(&unread, 0, &factor, target_of(tensor, &address, 1, dim));
        }
}

void clear_around_sequence(const Backward& backward, int64_t batch) {
    const Sequence s = resolve_sequence(backward.view.sequences, batch);
    clear_rows(backward, backward.grad_q, s.q_batch, Arg::kGradQ, s.q_row + s.seqlen_q, s.q_row + s.allocated_q);
    const int64_t end_key = s.first_key + s.seqlen_k, end = s.k_row + s.allocated_k;
    clear_rows(backward, backward.grad_k, s.k_batch, Arg::kGradK, s.k_row, std::min(s.first_key, end));
    clear_rows(backward, backward.grad_v, s.k_batch, Arg::kGradV, s.k_row, std::min(s.first_key, end));
    clear_rows(backward, backward.grad_k, s.k_batch, Arg::kGradK, end_key, end);
    clear_rows(backward, backward.grad_v, s.k_batch, Arg::kGradV, end_key, end);
}

// Rows of a ragged batch past its last sequence.
void clear_tail(const Backward& backward) {
    const SequenceTable& table = backward.view.sequences;
    const int64_t batch = backward.view.sizes.batch;
    if (table.cu_seqlens_q.given())
        clear_rows(backward, backward.grad_q, 0, Arg::kGradQ, table.cu_seqlens_q[batch], backward.view.sizes.total_q);
    if (!table.cu_seqlens_k.given()) return;
    clear_rows(backward, backward.grad_k, 0, Arg::kGradK, table.cu_seqlens_k[batch], backward.view.sizes.total_k);
    clear_rows(backward, backward.grad_v, 0, Arg::kGradV, table.cu_seqlens_k[batch], backward.view.sizes.total_k);
}

// d(sink) of one head: minus the sum over rows of P_sink * delta. One thread a head, rows in order.
double grad_of_sink(const Backward& backward, int64_t head) {
    const View& view = backward.view;
    const double sink = static_cast<double>(view.sink_of(head));
    if (sink == static_cast<double>(negative_infinity())) return 0.0;
    double sum = 0.0;
    for (int64_t batch = 0; batch < view.sizes.batch; ++batch) {
        const Sequence s = resolve_sequence(view.sequences, batch);
        for (int32_t query = 0; query < s.seqlen_q; ++query) {
            const int64_t index = backward.row_index(s, head, query);
            const double p = std::exp(sink - static_cast<double>(backward.lse[index]));
            sum -= p * static_cast<double>(backward.delta[index]);
        }
    }
    return sum;
}

}  // namespace

void prepare_rows(const Backward& backward, const Schedule& schedule) {
    parallel_for(schedule.num_units(), backward.step->num_threads,
                 [&](int64_t unit, int) noexcept { prepare_block(backward, schedule[unit]); });
}

void clear_unused_rows(const Backward& backward) {
    parallel_for(backward.view.sizes.batch, backward.step->num_threads,
                 [&](int64_t batch, int) noexcept { clear_around_sequence(backward, batch); });
    clear_tail(backward);
}

void finish_grad_q(const Backward& backward, const Schedule& schedule) {
    parallel_for(schedule.num_units(), backward.step->num_threads,
                 [&](int64_t unit, int) noexcept { finish_block(backward, schedule[unit]); });
}

void compute_grad_sink(const Backward& backward, const Arguments& arguments) {
    const TensorDesc& tensor = backward.step->problem[Arg::kGradSink];
    if (!tensor.given()) return;
    void* data = pointer_of(*backward.step, arguments, Arg::kGradSink);
    parallel_for(backward.view.sizes.num_heads_q, backward.step->num_threads, [&](int64_t head, int) noexcept {
        store_element(data, tensor.dtype, head * tensor.step(0), grad_of_sink(backward, head));
    });
}

}  // namespace tilewise::cpu
