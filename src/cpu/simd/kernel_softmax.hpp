// Scores and their softmax on a tile: score modifiers, the online softmax of a forward pass, the gradient of a backward
// pass.
//
// Work is done on the columns that a row sees and on no others: a hidden score is never read, so a NaN in it stays
// where it is, and a hidden probability is written as 0. The row maximum starts at -inf, and 0 is subtracted until a
// score above -inf was seen. What is subtracted is subtracted exactly where it matters: a score that equals the maximum
// (or the lse) gives exactly 1, however large it is, which a fused multiply-subtract in base 2 would not. Included by
// tile_ops.cpp only, after the header of its instruction set.
#pragma once

#include "cpu/simd/kernel_math.hpp"
#include "cpu/simd/kernel_pack.hpp"
#include "math/online_softmax.hpp"

namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET {

[[gnu::flatten]] inline void modify_row(const ScoreTile& tile, int row) {
    const int64_t offset = row * tile.row_stride;
    float* scores = tile.scores + offset;
    const Float scale = broadcast(tile.softmax_scale);
    const Float cap = broadcast(tile.softcap), inverse_cap = broadcast(1.0f / tile.softcap);
    const bool has_alibi = tile.alibi_slope != nullptr;
    const Float slope = broadcast(has_alibi ? tile.alibi_slope[row] : 0.0f);
    const Float position = broadcast(has_alibi ? tile.alibi_position[row] : 0.0f);
    for_visible_vectors(tile.visible[row], [&](int column, auto) {
        Float s = load(scores + column) * scale;
        if (tile.softcap > 0.0f) {
            const Float t = tanh(s * inverse_cap);
            s = cap * t;
            if (tile.cap_derivative != nullptr)
                store(tile.cap_derivative + offset + column, fma(t, zero() - t, broadcast(1.0f)));
        }
        if (has_alibi) {
            const Float key = iota() + broadcast(static_cast<float>(column));
            s = s - slope * abs(position - key);
        }
        if (tile.bias != nullptr) s = s + load(tile.bias + offset + column);
        if (tile.allowed != nullptr)
            s = select(nonzero_bytes(tile.allowed + offset + column), s, broadcast(negative_infinity()));
        store(scores + column, s);
    });
}

inline void modify_scores(const ScoreTile& tile) {
    for (int row = 0; row < tile.num_rows; ++row) modify_row(tile, row);
}

[[gnu::flatten]] inline float visible_maximum(const float* scores, Interval visible) {
    const Float lowest = broadcast(negative_infinity());
    // Four maxima in turn: one alone would wait for itself.
    Float highest[4] = {lowest, lowest, lowest, lowest};
    for_visible_vectors(visible, [&](int column, auto mask) {
        highest[0] = max(highest[0], select(mask, load(scores + column), lowest));
        const Float first = highest[0];
        highest[0] = highest[1], highest[1] = highest[2], highest[2] = highest[3], highest[3] = first;
    });
    return reduce_max(max(max(highest[0], highest[1]), max(highest[2], highest[3])));
}

inline Float dropped(const KeepTile& dropout, int64_t offset, Float p) {
    if (dropout.keep == nullptr) return p;
    return keep(nonzero_bytes(dropout.keep + offset), p * broadcast(dropout.scale));
}

// One row of a tile; returns the factor for the row's earlier output. Stored is the type of the probabilities in
// memory, Rounding the type whose values they take.
template <class Stored, class Rounding> [[gnu::flatten]] inline float softmax_row(const SoftmaxTile& tile, int row) {
    const Interval visible = tile.visible[row];
    const float* scores = tile.scores + row * tile.row_stride;
    Stored* probabilities = static_cast<Stored*>(tile.probabilities) + row * tile.row_stride;
    const int64_t keep_offset = row * tile.dropout.row_stride;
    for_hidden_vectors(visible, tile.num_columns, [&](int column) { store(probabilities + column, zero()); });
    if (is_empty(visible)) return 1.0f;

    const float old_max = tile.row_max[row];
    const float tile_max = visible_maximum(scores, visible);
    const float new_max = tile_max > old_max || tile_max != tile_max ? tile_max : old_max;
    const Float shift = broadcast(shift_of(new_max)), scale = broadcast(tile.scale_log2);
    Float sum = zero();
    for_visible_vectors(visible, [&](int column, auto mask) {
        const Float p = keep(mask, exp2_of_low((load(scores + column) - shift) * scale));
        sum = sum + p;
        store(probabilities + column, rounded_to<Rounding>(dropped(tile.dropout, keep_offset + column, p)));
    });
    const bool first = old_max == negative_infinity();  // a scale of 0 would make NaN of it
    const float rescale = first ? 0.0f : reduce_max(exp2_of_low((broadcast(old_max) - shift) * scale));
    tile.row_max[row] = new_max;
    tile.row_sum[row] = tile.row_sum[row] * rescale + reduce_add(sum);
    return rescale;
}

inline void softmax(const SoftmaxTile& tile, float* rescale) {
    with_element_type(tile.rounding, [&](auto t) {
        using Rounding = decltype(t);
        if (tile.format == DType::kBF16) {
            for (int row = 0; row < tile.num_rows; ++row) rescale[row] = softmax_row<BF16, float>(tile, row);
        } else {
            for (int row = 0; row < tile.num_rows; ++row) rescale[row] = softmax_row<float, Rounding>(tile, row);
        }
    });
}

[[gnu::flatten]] inline void gradient_row(const GradientTile& tile, int row) {
    const int64_t offset = row * tile.row_stride;
    float* scores = tile.scores + offset;
    float* dp = tile.dp + offset;
    const Interval visible = tile.visible[row];
    for_hidden_vectors(visible, tile.num_columns, [&](int column) {
        store(scores + column, zero());
        store(dp + column, zero());
    });
    const Float scale = broadcast(tile.scale), lse = broadcast(tile.lse[row]), log2_e = broadcast(kLog2E);
    const Float delta = broadcast(tile.delta[row]);
    const int64_t keep_offset = row * tile.dropout.row_stride;
    for_visible_vectors(visible, [&](int column, auto mask) {
        const Float p = keep(mask, exp2((load(scores + column) * scale - lse) * log2_e));
        const Float dp_kept = dropped(tile.dropout, keep_offset + column, load(dp + column));
        Float ds = p * (dp_kept - delta);
        if (tile.cap_derivative != nullptr) ds = ds * load(tile.cap_derivative + offset + column);
        store(scores + column, dropped(tile.dropout, keep_offset + column, p));
        store(dp + column, keep(mask, ds));
    });
}

inline void gradient(const GradientTile& tile) {
    for (int row = 0; row < tile.num_rows; ++row) gradient_row(tile, row);
}

}  // namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET
