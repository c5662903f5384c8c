// The tiled backward pass: q, k, v, o, lse, grad_o, grad_lse -> grad_q (b, sq, h, d), grad_k (b, sk, hk, d), grad_v (b,
// sk, hk, dv), ragged likewise, and grad_bias, grad_sink on request.
//
// A unit is a chunk of the keys of one key-value head of one sequence. It walks over tiles of tile_n keys; for each,
// all rows of the query heads that share it pass by in blocks of tile_m packed rows: five products a block (S, dP, dV,
// dK, dQ). dK and dV stay in the thread's scratch until the tile is done and are rounded once. dQ adds up in fp32 in
// the workspace, one sum for each chunk, and the chunks are added in order at the end: no atomics, so every gradient is
// bitwise repeatable.
#include "cpu/tiled_bwd.hpp"

#include <algorithm>

#include "core/workspace.hpp"
#include "cpu/parallel.hpp"
#include "cpu/simd/dispatch.hpp"
#include "cpu/tiled.hpp"

namespace tilewise::cpu {

namespace {

class BackwardUnit {
public:
    BackwardUnit(const Backward& backward, int64_t unit, unsigned char* memory)
        : backward_(backward), ops_(*backward.ops), carver_(memory), work_(backward, carver_) {
        const int64_t heads = backward.view.sizes.num_heads_kv;
        chunk_ = unit % backward.step->num_chunks;
        const int64_t head = unit / backward.step->num_chunks;
        group_ = group_of(backward.view, head / heads, head % heads);
        grad_q_ = backward.grad_q_rows(group_, chunk_);
    }

    void run() {
        const int64_t padded_rows = round_up(group_.num_rows(), ops_.row_quantum);
        std::fill_n(grad_q_, padded_rows * grad_q_stride(backward_.view.sizes, ops_), 0.0f);
        const int64_t tile_n = backward_.step->tiling.tile_n, chunks = backward_.step->num_chunks;
        const int64_t seqlen_k = group_.sequence.seqlen_k, tiles = ceil_div(seqlen_k, tile_n);
        for (int64_t tile = tiles * chunk_ / chunks; tile < tiles * (chunk_ + 1) / chunks; ++tile) {
            const int64_t begin = tile * tile_n;
            run_tile({static_cast<int32_t>(begin), static_cast<int32_t>(std::min(begin + tile_n, seqlen_k))});
        }
    }

private:
    void run_tile(Interval keys) {
        const int count = keys.end - keys.begin;
        std::fill_n(work_.tiles.grad_k, count_of_tile() * work_.tiles.stride.d, 0.0f);
        std::fill_n(work_.tiles.grad_v, count_of_tile() * work_.tiles.stride.dv, 0.0f);
        const Interval queries = visiting_rows(group_.mask, group_.sequence.seqlen_q, keys);
        if (!is_empty(queries)) {
            work_.load_keys(group_, keys);
            const int64_t quantum = ops_.row_quantum, tile_m = backward_.step->tiling.tile_m;
            const int64_t end = round_up(queries.end * group_.num_heads, quantum);
            for (int64_t row = queries.begin * group_.num_heads / quantum * quantum; row < end; row += tile_m)
                run_block(row, static_cast<int>(std::min(tile_m, end - row)));
        }
        store_keys(backward_.grad_k, work_.tiles.grad_k, work_.tiles.stride.d,
                   softmax_scale_of(backward_.step->problem), keys.begin, count);
        store_keys(backward_.grad_v, work_.tiles.grad_v, work_.tiles.stride.dv, 1.0f, keys.begin, count);
    }

    int64_t count_of_tile() const { return backward_.step->tiling.tile_n; }

    void run_block(int64_t first_row, int num_rows) {
        if (!work_.load_rows(group_, first_row, num_rows)) return;
        work_.differentiate(group_, true);
        const BackwardScratch& tiles = work_.tiles;
        const Sizes& sizes = backward_.view.sizes;
        const int64_t column = work_.first_column();
        add_to_keys(tiles.s, tiles.grad_o, tiles.stride.dv, tiles.grad_v + column * tiles.stride.dv, sizes.head_dim_v);
        add_to_keys(tiles.dp, tiles.q, tiles.stride.d, tiles.grad_k + column * tiles.stride.d, sizes.head_dim);

        Product product;
        product.a = tiles.dp;
        product.a_row = tiles.stride.s;
        product.b = tiles.k + column * tiles.stride.d;
        product.b_k = tiles.stride.d;
        product.b_panel = 2 * ops_.width;
        product.c_row = grad_q_stride(sizes, ops_);
        product.c = grad_q_ + first_row * product.c_row;
        product.m = num_rows;
        product.n = static_cast<int>(round_up(sizes.head_dim, ops_.width));
        product.k = work_.span().num_keys;
        product.accumulate = true;
        ops_.f32.multiply(product);
    }

    // sums (keys x dim) += transpose of p (rows x keys) * values (rows x dim)
    void add_to_keys(const float* p, const float* values, int64_t stride, float* sums, int64_t dim) {
        Product product;
        product.a = p;
        product.a_row = 1;
        product.a_k = work_.tiles.stride.s;
        product.b = values;
        product.b_k = stride;
        product.b_panel = 2 * ops_.width;
        product.c = sums;
        product.c_row = stride;
        product.m = work_.padded_columns();
        product.n = static_cast<int>(round_up(dim, ops_.width));
        product.k = work_.span().num_rows;
        product.accumulate = true;
        ops_.f32.multiply(product);
    }

    void store_keys(const HeadTensor& tensor, const float* sums, int64_t stride, float factor, int32_t first_key,
                    int count) {
        const Sizes& sizes = backward_.view.sizes;
        const int64_t dim = tensor.data == backward_.grad_k.data ? sizes.head_dim : sizes.head_dim_v;
        std::fill_n(work_.rows.factor, count, factor);
        key_addresses(group_, tensor, first_key, count, work_.rows.addresses);
        ops_.store_rows(sums, stride, work_.rows.factor, target_of(tensor, work_.rows.addresses, count, dim));
    }

    const Backward& backward_;
    const TileOps& ops_;
    Carver carver_;
    BackwardTiles work_;
    RowGroup group_;
    int64_t chunk_ = 0;
    float* grad_q_ = nullptr;
};

int64_t scratch_bytes(const Step& step, const TileOps& ops) {
    Carver carver;
    BackwardTiles(step, ops, carver);
    return std::max(carver.bytes(), step.problem.has(Arg::kGradBias) ? bias_scratch_bytes(step, ops) : 0);
}

Backward make_backward(const Step& step, const Arguments& arguments) {
    Backward backward;
    backward.step = &step;
    backward.ops = &tile_ops(static_cast<Isa>(step.row->isa));
    backward.view = make_view(step, arguments);
    backward.scale = remaining_scale(step.problem);
    backward.grad_o = head_tensor(step, arguments, Arg::kGradO);
    backward.grad_q = head_tensor(step, arguments, Arg::kGradQ);
    backward.grad_k = head_tensor(step, arguments, Arg::kGradK);
    backward.grad_v = head_tensor(step, arguments, Arg::kGradV);
    backward.lse = arguments.at<float>(step.block("lse"));
    backward.delta = arguments.at<float>(step.block("delta"));
    backward.grad_q_sums = arguments.at<float>(step.block("grad_q_sums"));
    return backward;
}

}  // namespace

float* Backward::grad_q_rows(const RowGroup& group, int64_t chunk) const {
    const Sequence& s = group.sequence;
    const int64_t spare = group.batch * ops->row_quantum;
    const int64_t row = (s.q_batch * view.sizes.max_seqlen_q + s.q_row) * group.num_heads + spare;
    const int64_t head = chunk * view.sizes.num_heads_kv + group.head_kv;
    return grad_q_sums + (head * grad_q_rows_of_head(view.sizes, *ops) + row) * grad_q_stride(view.sizes, *ops);
}

int64_t grad_q_rows_of_head(const Sizes& sizes, const TileOps& ops) {
    return sizes.total_q * sizes.gqa_ratio() + sizes.batch * ops.row_quantum;
}

int32_t chunks_for(const Step& step, int64_t threads) {
    const int64_t units = std::max<int64_t>(step.sizes.batch * step.sizes.num_heads_kv, 1);
    const int64_t tiles = std::max<int64_t>(ceil_div(step.sizes.max_seqlen_k, step.tiling.tile_n), 1);
    // Deterministic: the sums of dQ must not be grouped by the number of threads. Each chunk costs memory, hence the
    // bound.
    constexpr int64_t kDeterministicUnits = 16, kMostDeterministicChunks = 8;
    if (step.problem.exec.deterministic)
        return static_cast<int32_t>(std::min({ceil_div(kDeterministicUnits, units), kMostDeterministicChunks, tiles}));
    if (threads == 1 || units >= 3 * threads) return 1;
    return static_cast<int32_t>(std::min(ceil_div(3 * threads, units), tiles));
}

void layout_tiled_backward(Step& step, const DeviceInfo& device) {
    const TileOps& ops = tile_ops(static_cast<Isa>(step.row->isa));
    const Sizes& sizes = step.sizes;
    // Eight register tiles of rows: dK and dV are loaded and stored once for that many steps of their products.
    const int64_t longest = round_up(std::max<int64_t>(sizes.max_seqlen_q * sizes.gqa_ratio(), 1), ops.row_quantum);
    step.tiling.tile_m = static_cast<int32_t>(std::min<int64_t>(8 * ops.row_tile, longest));
    step.tiling.tile_n = keys_of_tile(sizes, ops);
    step.num_chunks = chunks_for(step, threads_allowed(step, device));
    step.num_threads = threads_for_units(step, device, sizes.batch * sizes.num_heads_kv * step.num_chunks);

    const int64_t rows = sizes.total_q * sizes.num_heads_q * int64_t{sizeof(float)};
    const int64_t sums = grad_q_rows_of_head(sizes, ops) * grad_q_stride(sizes, ops) * int64_t{sizeof(float)};
    WorkspaceLayout layout(step.workspace_base);
    layout.add("scratch", step.num_threads * scratch_bytes(step, ops));
    layout.add("schedule", (sizes.batch + 1) * int64_t{sizeof(int64_t)});
    layout.add("lse", rows);
    layout.add("delta", rows);
    layout.add("grad_q_sums", step.num_chunks * sizes.num_heads_kv * sums);
    step.workspace = layout.take_blocks();
}

Status launch_tiled_backward(const Step& step, const Arguments& arguments) {
    const Backward backward = make_backward(step, arguments);
    const Schedule schedule(backward.view, kRowsOfTask, 1, arguments.at<int64_t>(step.block("schedule")));
    clear_unused_rows(backward);
    prepare_rows(backward, schedule);
    const int64_t bytes = scratch_bytes(step, *backward.ops);
    auto* scratch = arguments.at<unsigned char>(step.block("scratch"));
    const int64_t units = step.sizes.batch * step.sizes.num_heads_kv * step.num_chunks;
    parallel_for(units, step.num_threads, [&](int64_t unit, int worker) noexcept {
        BackwardUnit(backward, unit, scratch + worker * bytes).run();
    });
    finish_grad_q(backward, schedule);
    compute_grad_sink(backward, arguments);
    compute_grad_bias(backward, arguments, scratch, bytes);
    return {};
}

}  // namespace tilewise::cpu
