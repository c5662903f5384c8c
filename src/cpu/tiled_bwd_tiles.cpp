// A tile of the backward pass: S = Q K^T and dP = dO V^T, the score modifiers, then P = exp(S - lse) and dS = P (dP -
// delta). See tiled_bwd.hpp. Everything is fp32 here, whatever the inputs are; P and dS are not rounded to the input
// type.
#include <algorithm>

#include "cpu/tiled_bwd.hpp"

namespace tilewise::cpu {

BackwardTiles::BackwardTiles(const Step& step, const TileOps& ops, Carver& carver) : ops_(&ops) {
    const Sizes& sizes = step.sizes;
    const int64_t num_rows = step.tiling.tile_m, num_keys = step.tiling.tile_n, panel = 2 * ops.width;
    tiles.stride.d = tile_stride(sizes.head_dim, ops);
    tiles.stride.dv = tile_stride(sizes.head_dim_v, ops);
    tiles.stride.s = tile_stride(num_keys, ops);
    tiles.stride.k_panel = sizes.head_dim * panel;
    tiles.stride.v_panel = sizes.head_dim_v * panel;
    tiles.q = carver.take<float>(num_rows * tiles.stride.d);
    tiles.grad_o = carver.take<float>(num_rows * tiles.stride.dv);
    tiles.k_transposed = carver.take<float>(ceil_div(num_keys, panel) * tiles.stride.k_panel);
    tiles.v_transposed = carver.take<float>(ceil_div(num_keys, panel) * tiles.stride.v_panel);
    tiles.k = carver.take<float>(num_keys * tiles.stride.d);
    tiles.grad_k = carver.take<float>(num_keys * tiles.stride.d);
    tiles.grad_v = carver.take<float>(num_keys * tiles.stride.dv);
    tiles.s = carver.take<float>(num_rows * tiles.stride.s);
    tiles.dp = carver.take<float>(num_rows * tiles.stride.s);
    rows.intervals = carver.take<Interval>(num_rows);
    rows.visible = carver.take<Interval>(num_rows);
    rows.lse = carver.take<float>(num_rows);
    rows.delta = carver.take<float>(num_rows);
    rows.factor = carver.take<float>(num_keys);
    rows.addresses = carver.take<void*>(std::max(num_rows, num_keys));
    rows.score = carve_scores(carver, score_traits(step.problem), step.tiling.tile_m, tiles.stride.s, true);
}

void BackwardTiles::load_keys(const RowGroup& group, Interval keys) {
    const View& view = backward_->view;
    const int count = keys.end - keys.begin;
    keys_ = keys;
    key_addresses(group, view.k, keys.begin, count, rows.addresses);
    const RowSource k = source_of(view.k, rows.addresses, count, view.sizes.head_dim);
    ops_->f32.pack_transposed(k, tiles.k_transposed, tiles.stride.k_panel);
    ops_->f32.pack_rows(k, tiles.k, tiles.stride.d);
    key_addresses(group, view.v, keys.begin, count, rows.addresses);
    const RowSource v = source_of(view.v, rows.addresses, count, view.sizes.head_dim_v);
    ops_->f32.pack_transposed(v, tiles.v_transposed, tiles.stride.v_panel);
}

bool BackwardTiles::load_rows(const RowGroup& group, int64_t first_row, int num_rows) {
    const View& view = backward_->view;
    row_intervals(group, first_row, num_rows, rows.intervals);
    for (int i = 0; i < num_rows && first_row + i < group.num_rows(); ++i) {
        const int64_t row = first_row + i;
        const int64_t index = backward_->row_index(group.sequence, group.head_of(row), group.query_of(row));
        rows.lse[i] = backward_->lse[index];
        rows.delta[i] = backward_->delta[index];
        // Every key of the row scored -inf: it has no probabilities to differentiate.
        if (rows.lse[i] == negative_infinity()) rows.intervals[i] = {};
    }
    const Interval hull = intersect(hull_of(rows.intervals, num_rows), keys_);
    if (is_empty(hull)) return false;
    const int panel = 2 * ops_->width;
    const int32_t first_key = keys_.begin + (hull.begin - keys_.begin) / panel * panel;
    span_ = {first_row, num_rows, first_key, hull.end - first_key};
    intervals_in_tile(rows.intervals, span_, rows.visible);

    query_addresses(group, view.q, first_row, num_rows, rows.addresses);
    ops_->f32.pack_rows(source_of(view.q, rows.addresses, num_rows, view.sizes.head_dim), tiles.q, tiles.stride.d);
    const HeadTensor& grad_o = backward_->grad_o;
    query_addresses(group, grad_o, first_row, num_rows, rows.addresses);
    ops_->f32.pack_rows(source_of(grad_o, rows.addresses, num_rows, view.sizes.head_dim_v), tiles.grad_o,
                        tiles.stride.dv);
    return true;
}

Product BackwardTiles::score_product(int num_columns) const {
    Product product;
    product.b_k = 2 * ops_->width;
    product.c_row = tiles.stride.s;
    product.m = span_.num_rows;
    product.n = num_columns;
    return product;
}

void BackwardTiles::differentiate(const RowGroup& group, bool of_product) {
    const Sizes& sizes = backward_->view.sizes;
    const int64_t first_panel = first_column() / (2 * ops_->width);
    Product s = score_product(padded_columns());
    s.a = tiles.q;
    s.a_row = tiles.stride.d;
    s.b = tiles.k_transposed + first_panel * tiles.stride.k_panel;
    s.b_panel = tiles.stride.k_panel;
    s.c = tiles.s;
    s.k = static_cast<int>(sizes.head_dim);
    ops_->f32.multiply(s);
    Product dp = score_product(padded_columns());
    dp.a = tiles.grad_o;
    dp.a_row = tiles.stride.dv;
    dp.b = tiles.v_transposed + first_panel * tiles.stride.v_panel;
    dp.b_panel = tiles.stride.v_panel;
    dp.c = tiles.dp;
    dp.k = static_cast<int>(sizes.head_dim_v);
    ops_->f32.multiply(dp);

    modify_tile(*ops_, group, span_, rows.visible, rows.score, tiles.s);
    GradientTile tile;
    tile.scores = tiles.s;
    tile.dp = tiles.dp;
    tile.cap_derivative = of_product ? rows.score.cap_derivative : nullptr;
    tile.row_stride = tiles.stride.s;
    tile.visible = rows.visible;
    tile.num_rows = span_.num_rows;
    tile.num_columns = padded_columns();
    tile.scale = backward_->scale;
    tile.dropout = keep_tile(group, span_, rows.score);
    tile.lse = rows.lse;
    tile.delta = rows.delta;
    ops_->gradient(tile);
}

}  // namespace tilewise::cpu
