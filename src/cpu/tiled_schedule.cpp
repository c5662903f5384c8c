// Units of work of a forward call; see tiled_schedule.hpp.
#include "cpu/tiled_schedule.hpp"

#include <algorithm>

#include "core/cost.hpp"

namespace tilewise::cpu {

namespace {
// Waking a thread takes some ten microseconds; a core does this much work meanwhile.
constexpr double kFlopsWorthAThread = 1e6;
}  // namespace

Schedule::Schedule(const View& view, int64_t tile_m, int64_t splits, int64_t* blocks_before)
    : blocks_before_(blocks_before),
      batch_(view.sizes.batch),
      heads_(view.sizes.num_heads_kv),
      splits_(splits),
      tile_m_(tile_m) {
    blocks_before[0] = 0;
    for (int64_t batch = 0; batch < batch_; ++batch) {
        const int64_t rows = resolve_sequence(view.sequences, batch).seqlen_q * view.sizes.gqa_ratio();
        blocks_before[batch + 1] = blocks_before[batch] + ceil_div(rows, tile_m);
    }
}

RowBlock Schedule::operator[](int64_t unit) const {
    RowBlock block;
    block.split = unit % splits_;
    block.head_kv = unit / splits_ % heads_;
    const int64_t index = unit / splits_ / heads_;
    const int64_t* after = std::upper_bound(blocks_before_, blocks_before_ + batch_ + 1, index);
    block.batch = after - blocks_before_ - 1;
    block.first_row = (*after - 1 - index) * tile_m_;
    return block;
}

int32_t threads_for_units(const Step& step, const DeviceInfo& device, int64_t units) {
    const double worth = work_of(step.problem, step.sizes).flops / kFlopsWorthAThread;
    const int64_t useful = std::min(units, static_cast<int64_t>(std::min(worth, 1e6)));
    return threads_up_to(useful, step, device);
}

}  // namespace tilewise::cpu
