// The tiled forward pass: q (b, sq, h, d), k (b, sk, hk, d), v (b, sk, hk, dv) -> o (b, sq, h, dv), lse (b, h, sq),
// ragged and paged likewise.
//
// A unit is a block of packed rows (tiled_rows.hpp) of one key-value head. It walks over tiles of tile_n keys: packs
// the tile's K and V once, then for each strip of rows computes S, its running softmax and O += P V, so that S and P
// stay in the first-level cache. Tiles begin at multiples of tile_n from key 0, and every sum of a row runs in key
// order inside them, so without splits a row's bits depend on nothing but its own sequence: not on the batch, its
// neighbours, the block size or the threads. Split KV: each split leaves its normalised output and lse in the
// workspace, and tiled_split.cpp merges them.
#include "cpu/tiled_fwd.hpp"

#include <algorithm>
#include <cmath>

#include "cpu/parallel.hpp"
#include "cpu/simd/dispatch.hpp"
#include "cpu/tiled.hpp"
#include "cpu/tiled_schedule.hpp"
#include "math/online_softmax.hpp"

namespace tilewise::cpu {

namespace {

// One unit of work.
class ForwardUnit {
public:
    ForwardUnit(const Forward& forward, const RowBlock& block, unsigned char* memory)
        : forward_(forward), ops_(*forward.ops), group_(group_of(forward.view, block.batch, block.head_kv)) {
        Carver carver(memory);
        tiles_ = carve_tiles(carver, *forward.step, ops_);
        rows_ = carve_rows(carver, *forward.step, ops_);
        first_row_ = block.first_row;
        num_rows_ = static_cast<int>(std::min<int64_t>(forward.step->tiling.tile_m, group_.num_rows() - first_row_));
        padded_rows_ = static_cast<int>(round_up(num_rows_, ops_.row_quantum));
        split_ = block.split;
    }

    void run() {
        const Interval keys = share_of_split(row_intervals(group_, first_row_, padded_rows_, rows_.intervals));
        std::fill_n(rows_.row_max, padded_rows_, negative_infinity());
        std::fill_n(rows_.row_sum, padded_rows_, 0.0f);
        if (!is_empty(keys)) {
            load_queries();
            std::fill_n(tiles_.o, padded_rows_ * tiles_.o_stride, 0.0f);
            visit_tiles(keys);
        }
        if (forward_.splits.count > 1) {
            store_partial();
        } else {
            store_output();
        }
    }

private:
    int panel() const { return 2 * ops_.width; }

    // The keys of this unit: whole tiles of the hull, as even as they go. Depends on what the rows see, never on the
    // capacity of a cache.
    Interval share_of_split(Interval hull) const {
        const int64_t splits = forward_.splits.used(hull);
        if (splits <= 1) return split_ == 0 ? hull : Interval{};
        const int64_t tile_n = forward_.step->tiling.tile_n;
        const int64_t first = hull.begin / tile_n, tiles = ceil_div(hull.end, tile_n) - first;
        const auto edge = [&](int64_t i) { return (first + std::min(i, splits) * tiles / splits) * tile_n; };
        const int32_t begin = static_cast<int32_t>(clamp_to<int64_t>(edge(split_), hull.begin, hull.end));
        return {begin, static_cast<int32_t>(clamp_to<int64_t>(edge(split_ + 1), begin, hull.end))};
    }

    void load_queries() {
        const HeadTensor& q = forward_.view.q;
        query_addresses(group_, q, first_row_, padded_rows_, rows_.addresses);
        const RowSource source = source_of(q, rows_.addresses, padded_rows_, forward_.view.sizes.head_dim);
        forward_.products->pack_rows(source, tiles_.q, tiles_.q_stride);
    }

    void visit_tiles(Interval keys) {
        const int64_t tile_n = forward_.step->tiling.tile_n;
        // In 64 bits: the end of a tile may pass the longest sequence.
        for (int64_t tile = keys.begin / tile_n * tile_n; tile < keys.end; tile += tile_n) {
            const int64_t begin = std::max<int64_t>(tile, keys.begin / panel() * panel());
            const int64_t end = std::min<int64_t>(tile + tile_n, keys.end);
            visit_keys({static_cast<int32_t>(begin), static_cast<int32_t>(end)});
        }
    }

    // Packs the keys, which start at a whole panel of their tile, and takes every strip through them.
    void visit_keys(Interval keys) {
        const View& view = forward_.view;
        const int num_keys = keys.end - keys.begin;
        key_addresses(group_, view.k, keys.begin, num_keys, rows_.addresses);
        forward_.products->pack_transposed(source_of(view.k, rows_.addresses, num_keys, view.sizes.head_dim), tiles_.k,
                                           tiles_.k_panel);
        key_addresses(group_, view.v, keys.begin, num_keys, rows_.addresses);
        forward_.products->pack_panels(source_of(view.v, rows_.addresses, num_keys, view.sizes.head_dim_v), tiles_.v,
                                       tiles_.v_panel);
        const int strip = strip_rows(ops_);
        for (int row = 0; row < padded_rows_; row += strip) {
            const int count = std::min(strip, padded_rows_ - row);
            const Interval hull = intersect(hull_of(rows_.intervals + row, count), keys);
            if (is_empty(hull)) continue;
            const int32_t first = hull.begin / panel() * panel();
            visit_strip(row, {first_row_ + row, count, first, hull.end - first}, (first - keys.begin) / panel());
        }
    }

    // S, P and O of one strip of rows and the keys of `span`, which start at packed panel `first_panel`.
    void visit_strip(int row, const TileSpan& span, int64_t first_panel) {
        const ProductOps& products = *forward_.products;
        const int64_t element = size_of(products.format);
        const int columns = static_cast<int>(round_up(span.num_keys, ops_.width));
        Product scores;
        scores.a = tiles_.q + row * tiles_.q_stride * element;
        scores.a_row = tiles_.q_stride;
        scores.b = tiles_.k + first_panel * tiles_.k_panel * element;
        scores.b_k = panel() * (products.format == DType::kBF16 ? 2 : 1);
        scores.b_panel = tiles_.k_panel;
        scores.c = tiles_.s;
        scores.c_row = tiles_.s_stride;
        scores.m = span.num_rows;
        scores.n = columns;
        scores.k = static_cast<int>(forward_.view.sizes.head_dim);
        products.multiply(scores);

        intervals_in_tile(rows_.intervals + row, span, rows_.visible);
        modify_tile(ops_, group_, span, rows_.visible, rows_.score, tiles_.s);
        void* probabilities = products.format == DType::kBF16 ? static_cast<void*>(tiles_.p) : tiles_.s;
        apply_softmax(row, span, columns, probabilities);

        Product output = scores;
        output.a = probabilities;
        output.a_row = tiles_.s_stride;
        output.b = tiles_.v + first_panel * panel() * panel() * element;
        output.b_panel = tiles_.v_panel;
        output.c = tiles_.o + row * tiles_.o_stride;
        output.c_row = tiles_.o_stride;
        output.n = static_cast<int>(round_up(forward_.view.sizes.head_dim_v, ops_.width));
        output.k = span.num_keys;
        output.accumulate = true;
        products.multiply(output);
    }

    void apply_softmax(int row, const TileSpan& span, int columns, void* probabilities) {
        SoftmaxTile tile;
        tile.scores = tiles_.s;
        tile.probabilities = probabilities;
        tile.row_stride = tiles_.s_stride;
        tile.visible = rows_.visible;
        tile.num_rows = span.num_rows;
        tile.num_columns = columns;
        tile.scale_log2 = static_cast<float>(static_cast<double>(forward_.scale) * kLog2E);
        tile.format = forward_.products->format;
        tile.rounding = forward_.view.q.dtype;
        tile.dropout = keep_tile(group_, span, rows_.score);
        tile.row_max = rows_.row_max + row;
        tile.row_sum = rows_.row_sum + row;
        ops_.softmax(tile, rows_.factor);
        ops_.scale_rows(tiles_.o + row * tiles_.o_stride, tiles_.o_stride, span.num_rows,
                        static_cast<int>(forward_.view.sizes.head_dim_v), rows_.factor);
    }

    double scaled_maximum(int row) const {
        const double row_max = static_cast<double>(rows_.row_max[row]);
        // A scale of 0 would make NaN of a row that saw nothing.
        return row_max == static_cast<double>(negative_infinity()) ? row_max
                                                                   : row_max * static_cast<double>(forward_.scale);
    }

    // Turns row_sum into lse and factor into what makes the accumulated rows the output.
    SoftmaxState<double> finish_row(int row, double sink) {
        const double row_max = scaled_maximum(row);
        SoftmaxState<double> state{row_max, static_cast<double>(rows_.row_sum[row])};
        if (sink != static_cast<double>(negative_infinity())) state = with_sink(state, sink);
        const double weight = std::exp(row_max - shift_of(state.row_max));
        rows_.factor[row] = static_cast<float>(weight * inverse_sum(state.row_sum));
        return state;
    }

    void store_output() {
        const View& view = forward_.view;
        const Sequence& s = group_.sequence;
        for (int row = 0; row < num_rows_; ++row) {
            const int64_t head = group_.head_of(first_row_ + row);
            const SoftmaxState<double> state = finish_row(row, static_cast<double>(view.sink_of(head)));
            if (!view.lse.given()) continue;
            const int64_t query = s.q_row + group_.query_of(first_row_ + row);
            store_element(view.lse.data, view.lse.dtype, view.lse.offset(s.q_batch, head, query), lse_of(state));
        }
        query_addresses(group_, view.o, first_row_, num_rows_, rows_.addresses);
        ops_.store_rows(tiles_.o, tiles_.o_stride, rows_.factor,
                        target_of(view.o, rows_.addresses, num_rows_, view.sizes.head_dim_v));
    }

    // The sink, which belongs to no split, enters at the merge.
    void store_partial() {
        const SplitOutput& splits = forward_.splits;
        for (int row = 0; row < num_rows_; ++row) {
            const int64_t index = splits.row(group_, first_row_ + row, split_);
            splits.lse[index] = lse_of(finish_row(row, static_cast<double>(negative_infinity())));
            rows_.addresses[row] = splits.o + index * forward_.view.sizes.head_dim_v;
        }
        const RowTarget target{rows_.addresses, 1, DType::kF32, num_rows_,
                               static_cast<int>(forward_.view.sizes.head_dim_v)};
        ops_.store_rows(tiles_.o, tiles_.o_stride, rows_.factor, target);
    }

    const Forward& forward_;
    const TileOps& ops_;
    RowGroup group_;
    ForwardScratch tiles_;
    RowScratch rows_;
    int64_t first_row_ = 0, split_ = 0;
    int num_rows_ = 0, padded_rows_ = 0;
};

}  // namespace

Status launch_tiled_forward(const Step& step, const Arguments& arguments) {
    Forward forward;
    forward.step = &step;
    forward.view = make_view(step, arguments);
    forward.ops = &tile_ops(static_cast<Isa>(step.row->isa));
    forward.products = &products_of(*forward.ops, forward.view.q.dtype);
    forward.scale = remaining_scale(step.problem);
    forward.splits = split_output(step, arguments);
    const Schedule schedule(forward.view, step.tiling.tile_m, step.num_splits,
                            arguments.at<int64_t>(step.block("schedule")));
    const int64_t bytes = forward_scratch_bytes(step, *forward.ops);
    auto* scratch = arguments.at<unsigned char>(step.block("scratch"));
    parallel_for(schedule.num_units(), step.num_threads, [&](int64_t unit, int worker) noexcept {
        ForwardUnit(forward, schedule[unit], scratch + worker * bytes).run();
    });
    if (step.num_splits > 1) merge_splits(forward.view, *forward.ops, forward.splits);
    return {};
}

}  // namespace tilewise::cpu
