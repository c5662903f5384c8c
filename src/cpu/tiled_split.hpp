// Split KV: when there are fewer row blocks than threads, the keys of a block are shared out between splits. Each
// leaves a normalised output and its lse in the workspace,
//
//   partial_o (splits, hk, total_q * gqa_ratio, dv) fp32      partial_lse (splits, hk, total_q * gqa_ratio) double
//
// and the merge weighs them by lse (math/online_softmax.hpp). How many of the splits a block uses follows from the keys
// that its rows see, so the capacity of a cache changes no result.
#pragma once

#include "core/workspace.hpp"
#include "cpu/tiled_rows.hpp"

namespace tilewise::cpu {

struct SplitOutput {
    int64_t count = 1;
    bool automatic = false;  // chosen by the plan, not by the caller
    float* o = nullptr;
    double* lse = nullptr;

    // Splits that share the keys of `hull`.
    int64_t used(Interval hull) const;
    // Index of a packed row in partial_lse, and in partial_o in units of dv.
    int64_t row(const RowGroup& group, int64_t packed_row, int64_t split) const;
};

// The number of splits for `blocks` row blocks on `threads` threads.
int32_t splits_for(const Step& step, int64_t blocks, int64_t threads);
void add_split_blocks(WorkspaceLayout& layout, const Step& step);
SplitOutput split_output(const Step& step, const Arguments& arguments);

// Merges all splits into o and lse; the sink, which belongs to none of them, is one more part.
void merge_splits(const View& view, const TileOps& ops, const SplitOutput& splits);

}  // namespace tilewise::cpu
