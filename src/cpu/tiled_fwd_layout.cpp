// The plan-time half of the tiled forward pass: how large its tiles and blocks are, how many splits and threads it
// uses, and where everything lies in the workspace.
#include <algorithm>

#include "core/workspace.hpp"
#include "cpu/simd/dispatch.hpp"
#include "cpu/tiled.hpp"
#include "cpu/tiled_fwd.hpp"
#include "cpu/tiled_schedule.hpp"

namespace tilewise::cpu {

namespace {

// Row blocks: large, so that packing keys is shared by many rows, as long as the block's Q and O leave half of the
// second-level cache to everything else; and enough of them for the threads to even out.
int32_t rows_of_block(const Step& step, const TileOps& ops, const DeviceInfo& device, int64_t threads) {
    const Sizes& sizes = step.sizes;
    const int64_t group_rows = sizes.total_q * sizes.gqa_ratio();
    const int64_t longest = std::max<int64_t>(sizes.max_seqlen_q * sizes.gqa_ratio(), 1);
    const int64_t row_bytes = (tile_stride(sizes.head_dim, ops) + tile_stride(sizes.head_dim_v, ops)) * 4;
    const int64_t smallest = 2 * strip_rows(ops);
    int64_t rows = 32 * strip_rows(ops);
    while (rows > smallest && (rows * row_bytes > device.cpu.l2_bytes / 2 ||
                               ceil_div(group_rows, rows) * sizes.num_heads_kv < 4 * threads))
        rows /= 2;
    return static_cast<int32_t>(std::min(rows, round_up(longest, ops.row_quantum)));
}

}  // namespace

ForwardScratch carve_tiles(Carver& carver, const Step& step, const TileOps& ops) {
    const int64_t rows = round_up(step.tiling.tile_m, ops.row_quantum), keys = step.tiling.tile_n;
    const int64_t panel = 2 * ops.width;
    const int64_t element = size_of(products_of(ops, step.problem[Arg::kQ].dtype).format);
    ForwardScratch scratch;
    scratch.q_stride = tile_stride(step.sizes.head_dim, ops);
    scratch.s_stride = tile_stride(keys, ops);
    scratch.o_stride = tile_stride(step.sizes.head_dim_v, ops);
    scratch.k_panel = round_up(step.sizes.head_dim, 2) * panel;
    scratch.v_panel = keys * panel;
    scratch.q = carver.take<unsigned char>(rows * scratch.q_stride * element);
    scratch.k = carver.take<unsigned char>(ceil_div(keys, panel) * scratch.k_panel * element);
    scratch.v = carver.take<unsigned char>(ceil_div(step.sizes.head_dim_v, panel) * scratch.v_panel * element);
    scratch.o = carver.take<float>(rows * scratch.o_stride);
    scratch.s = carver.take<float>(strip_rows(ops) * scratch.s_stride);
    if (element == 2) scratch.p = carver.take<unsigned char>(strip_rows(ops) * scratch.s_stride * element);
    return scratch;
}

RowScratch carve_rows(Carver& carver, const Step& step, const TileOps& ops) {
    const int64_t rows = round_up(step.tiling.tile_m, ops.row_quantum);
    RowScratch scratch;
    scratch.row_max = carver.take<float>(rows);
    scratch.row_sum = carver.take<float>(rows);
    scratch.factor = carver.take<float>(rows);
    scratch.intervals = carver.take<Interval>(rows);
    scratch.visible = carver.take<Interval>(strip_rows(ops));
    scratch.addresses = carver.take<void*>(std::max<int64_t>(rows, step.tiling.tile_n));
    scratch.score =
        carve_scores(carver, score_traits(step.problem), strip_rows(ops), tile_stride(step.tiling.tile_n, ops), false);
    return scratch;
}

int64_t forward_scratch_bytes(const Step& step, const TileOps& ops) {
    Carver carver;
    carve_tiles(carver, step, ops);
    carve_rows(carver, step, ops);
    return carver.bytes();
}

void layout_tiled_forward(Step& step, const DeviceInfo& device) {
    const TileOps& ops = tile_ops(static_cast<Isa>(step.row->isa));
    const Sizes& sizes = step.sizes;
    const int64_t threads = threads_allowed(step, device);
    step.tiling.tile_n = keys_of_tile(sizes, ops);
    step.tiling.tile_m = rows_of_block(step, ops, device, threads);
    const int64_t blocks = ceil_div(sizes.total_q * sizes.gqa_ratio(), step.tiling.tile_m) * sizes.num_heads_kv;
    step.num_splits = splits_for(step, blocks, threads);
    const int64_t ragged_blocks = blocks + sizes.batch * sizes.num_heads_kv;  // each sequence may end in a short one
    step.num_threads = threads_for_units(step, device, ragged_blocks * step.num_splits);

    WorkspaceLayout layout(step.workspace_base);
    layout.add("scratch", step.num_threads * forward_scratch_bytes(step, ops));
    layout.add("schedule", (sizes.batch + 1) * int64_t{sizeof(int64_t)});
    add_split_blocks(layout, step);
    step.workspace = layout.take_blocks();
}

}  // namespace tilewise::cpu
