// Split KV of the tiled forward pass; see tiled_split.hpp.
#include "cpu/tiled_split.hpp"

#include <algorithm>

#include "core/validate.hpp"
#include "cpu/parallel.hpp"
#include "math/online_softmax.hpp"

namespace tilewise::cpu {

namespace {

// A split that the plan chose has at least this many keys: merging costs about as much as a dozen keys.
constexpr int64_t kKeysWorthASplit = 512;
constexpr int64_t kMostAutomaticSplits = 64;
constexpr int64_t kRowsOfMergeTask = 16;

void merge_row(const RowGroup& group, const TileOps& ops, const SplitOutput& splits, int64_t row) {
    const View& view = *group.view;
    const int64_t dim = view.sizes.head_dim_v;
    double lse = static_cast<double>(view.sink_of(group.head_of(row)));
    for (int64_t split = 0; split < splits.count; ++split)
        lse = merge_lse(lse, splits.lse[splits.row(group, row, split)]);
    alignas(64) float sum[kMaxHeadDimV + 16] = {};
    for (int64_t split = 0; split < splits.count; ++split) {
        const int64_t index = splits.row(group, row, split);
        const float weight = static_cast<float>(merge_weight(splits.lse[index], lse));
        if (weight == 0.0f) continue;
        const float* part = splits.o + index * dim;
        for (int64_t i = 0; i < dim; ++i) sum[i] += weight * part[i];
    }
    const float factor = 1.0f;
    void* address;
    query_addresses(group, view.o, row, 1, &address);
    ops.store_rows(sum, 0, &factor, target_of(view.o, &address, 1, dim));
    if (!view.lse.given()) return;
    const Sequence& s = group.sequence;
    const int64_t offset = view.lse.offset(s.q_batch, group.head_of(row), s.q_row + group.query_of(row));
    store_element(view.lse.data, view.lse.dtype, offset, lse);
}

}  // namespace

int64_t SplitOutput::used(Interval hull) const {
    if (!automatic) return count;
    return std::min(count, ceil_div(hull.end - hull.begin, kKeysWorthASplit));
}

int64_t SplitOutput::row(const RowGroup& group, int64_t packed_row, int64_t split) const {
    const Sizes& sizes = group.view->sizes;
    const Sequence& s = group.sequence;
    const int64_t first = (s.q_batch * sizes.max_seqlen_q + s.q_row) * group.num_heads;
    return (split * sizes.num_heads_kv + group.head_kv) * sizes.total_q * group.num_heads + first + packed_row;
}

int32_t splits_for(const Step& step, int64_t blocks, int64_t threads) {
    // The merge would make a row's bits depend on how many splits there are.
    if (step.problem.exec.batch_invariant) return 1;
    if (step.problem.exec.num_splits > 0) return step.problem.exec.num_splits;
    if (threads == 1 || blocks >= 2 * threads) return 1;
    const int64_t wanted = ceil_div(4 * threads, std::max<int64_t>(blocks, 1));
    const int64_t most = std::min(kMostAutomaticSplits, ceil_div(step.sizes.max_seqlen_k, kKeysWorthASplit));
    return static_cast<int32_t>(clamp_to<int64_t>(wanted, 1, std::max<int64_t>(most, 1)));
}

void add_split_blocks(WorkspaceLayout& layout, const Step& step) {
    if (step.num_splits <= 1) return;
    const int64_t rows = step.num_splits * step.sizes.total_q * step.sizes.num_heads_q;
    layout.add("partial_o", rows * step.sizes.head_dim_v * int64_t{sizeof(float)});
    layout.add("partial_lse", rows * int64_t{sizeof(double)});
}

SplitOutput split_output(const Step& step, const Arguments& arguments) {
    SplitOutput splits;
    splits.count = step.num_splits;
    splits.automatic = step.problem.exec.num_splits == 0;
    if (splits.count > 1) {
        splits.o = arguments.at<float>(step.block("partial_o"));
        splits.lse = arguments.at<double>(step.block("partial_lse"));
    }
    return splits;
}

void merge_splits(const View& view, const TileOps& ops, const SplitOutput& splits) {
    const int64_t heads = view.sizes.num_heads_kv;
    const int64_t blocks = ceil_div(view.sizes.max_seqlen_q * view.sizes.gqa_ratio(), kRowsOfMergeTask);
    parallel_for(view.sizes.batch * heads * blocks, view.launch.step->num_threads, [&](int64_t task, int) noexcept {
        const RowGroup group = group_of(view, task / heads / blocks, task / blocks % heads);
        const int64_t first = task % blocks * kRowsOfMergeTask;
        const int64_t end = std::min(first + kRowsOfMergeTask, group.num_rows());
        for (int64_t row = first; row < end; ++row) merge_row(group, ops, splits, row);
    });
}

}  // namespace tilewise::cpu
