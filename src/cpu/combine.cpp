// Merge of partial outputs by their log-sum-exp; see combine.hpp. Sums are double and go through the parts in order, so the result does
// not depend on the number of threads. A task is one row of o with all its heads.
#include "cpu/combine.hpp"

#include <algorithm>
#include <span>

#include "core/workspace.hpp"
#include "cpu/parallel.hpp"
#include "cpu/threads.hpp"
#include "cpu/view.hpp"
#include "math/online_softmax.hpp"

namespace tilewise::cpu {

namespace {

constexpr int64_t kElementsOfOneThread = 1 << 14;

// One part at a time, a partial tensor is an ordinary one: its first axis is a stride.
struct Parts {
    HeadTensor o;
    RowTensor lse;
    int64_t count = 0;
    int64_t o_stride = 0;
    int64_t lse_stride = 0;
};

Parts parts_of(const Step& step, const Arguments& arguments) {
    const TensorDesc& o = step.problem[Arg::kPartialO];
    const TensorDesc& lse = step.problem[Arg::kPartialLse];
    const int last = o.rank - 1, last_lse = lse.rank - 1;
    Parts parts;
    parts.o = {pointer_of(step, arguments, Arg::kPartialO),
               o.dtype,
               o.rank == 5 ? stride_of(o, 1) : 0,
               stride_of(o, last - 2),
               stride_of(o, last - 1),
               stride_of(o, last)};
    parts.lse = {pointer_of(step, arguments, Arg::kPartialLse), lse.dtype, lse.rank == 4 ? stride_of(lse, 1) : 0,
                 stride_of(lse, last_lse - 1), stride_of(lse, last_lse)};
    parts.count = o.dim(0);
    parts.o_stride = stride_of(o, 0);
    parts.lse_stride = stride_of(lse, 0);
    return parts;
}

double lse_of_part(const Parts& parts, int64_t part, int64_t lse_offset) {
    return load_element(parts.lse.data, parts.lse.dtype, part * parts.lse_stride + lse_offset);
}

// sums: (head_dim_v), the merged output of one row and head; returns its lse.
double combine_row(const Parts& parts, int64_t o_offset, int64_t lse_offset, std::span<double> sums) {
    double lse = static_cast<double>(negative_infinity());
    for (int64_t part = 0; part < parts.count; ++part)
        lse = merge_lse<double>(lse, lse_of_part(parts, part, lse_offset));
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t part = 0; part < parts.count; ++part) {
        const double weight = merge_weight<double>(lse_of_part(parts, part, lse_offset), lse);
        if (weight == 0.0) continue;
        int64_t offset = part * parts.o_stride + o_offset;
        for (double& sum : sums) {
            sum += weight * load_element(parts.o.data, parts.o.dtype, offset);
            offset += parts.o.dim_stride;
        }
    }
    return lse;
}

}  // namespace

void layout_combine(Step& step, const DeviceInfo& device) {
    const TensorDesc& parts = step.problem[Arg::kPartialO];
    const int64_t useful = ceil_div(parts.num_elements(), kElementsOfOneThread);
    step.num_threads = threads_up_to(useful, step, device);
    WorkspaceLayout layout(step.workspace_base);
    layout.add("sums", step.num_threads * parts.dim(parts.rank - 1) * int64_t{sizeof(double)});
    step.workspace = layout.take_blocks();
}

double cost_combine(const Step& step, const DeviceInfo&) {
    const auto elements = static_cast<double>(step.problem[Arg::kPartialO].num_elements());
    return 1e-6 + 2e-9 * elements / static_cast<double>(step.num_threads);
}

Status launch_combine(const Step& step, const Arguments& arguments) {
    const Parts parts = parts_of(step, arguments);
    const HeadTensor o = head_tensor(step, arguments, Arg::kO);
    const RowTensor lse = row_tensor(step, arguments, Arg::kLse);
    const TensorDesc& shape = step.problem[Arg::kO];
    const bool ragged = shape.rank == 3;
    const int64_t rows = ragged ? shape.dim(0) : shape.dim(1);
    const int64_t heads = shape.dim(shape.rank - 2);
    const auto head_dim_v = static_cast<size_t>(shape.dim(shape.rank - 1));
    auto* scratch = arguments.at<double>(step.block("sums"));
    parallel_for((ragged ? 1 : shape.dim(0)) * rows, step.num_threads, [&](int64_t task, int worker) noexcept {
        const int64_t batch = task / rows, row = task % rows;
        const std::span<double> sums(scratch + static_cast<size_t>(worker) * head_dim_v, head_dim_v);
        for (int64_t head = 0; head < heads; ++head) {
            const double merged =
                combine_row(parts, parts.o.offset(batch, row, head), parts.lse.offset(batch, head, row), sums);
            int64_t offset = o.offset(batch, row, head);
            for (const double sum : sums) {
                store_element(o.data, o.dtype, offset, sum);
                offset += o.dim_stride;
            }
            if (lse.given()) store_element(lse.data, lse.dtype, lse.offset(batch, head, row), merged);
        }
    });
    return {};
}

}  // namespace tilewise::cpu
