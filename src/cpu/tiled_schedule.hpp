// Cuts a forward call into units of work: (sequence, block of tile_m packed rows, key-value head, split). Sequences
// differ in length, so a table in the workspace holds how many row blocks lie before each; a unit finds its sequence by
// bisection.
#pragma once

#include "cpu/threads.hpp"
#include "cpu/tiled_rows.hpp"

namespace tilewise::cpu {

struct RowBlock {
    int64_t batch = 0;
    int64_t first_row = 0;  // packed
    int64_t head_kv = 0;
    int64_t split = 0;
};

class Schedule {
public:
    // blocks_before: int64 (batch + 1), written here. Every unit has its own number; `splits` of them share a row
    // block.
    Schedule(const View& view, int64_t tile_m, int64_t splits, int64_t* blocks_before);
    int64_t num_units() const { return blocks_before_[batch_] * heads_ * splits_; }
    // Later row blocks come first: with a causal mask they are the longest, and long work is best not left for the end.
    RowBlock operator[](int64_t unit) const;

private:
    const int64_t* blocks_before_;
    int64_t batch_, heads_, splits_, tile_m_;
};

// Threads worth using for `units` independent units of a step. Its estimate of the work looks at the capacity of a
// cache, not at the keys in it: nothing that decides about a result's bits may depend on this number.
int32_t threads_for_units(const Step& step, const DeviceInfo& device, int64_t units);

}  // namespace tilewise::cpu
