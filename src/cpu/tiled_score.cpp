// Score modifiers and dropout of a tile; see tiled_score.hpp.
#include "cpu/tiled_score.hpp"

#include <cstring>

namespace tilewise::cpu {

namespace {

const unsigned char* pair_row(const PairTensor& tensor, const RowGroup& group, int64_t row, int64_t first_key) {
    const int64_t bytes = tensor.dtype == DType::kBits ? 1 : size_of(tensor.dtype);
    const int64_t key = tensor.dtype == DType::kBits ? 0 : first_key;
    const int64_t offset = tensor.offset(group.batch, group.head_of(row), group.query_of(row), key);
    return static_cast<const unsigned char*>(tensor.data) + offset * bytes;
}

void gather_bias(const TileOps& ops, const RowGroup& group, const TileSpan& span, const ScoreScratch& scratch) {
    const PairTensor& bias = group.view->score.bias;
    for (int i = 0; i < span.num_rows; ++i) {
        const int64_t row = span.first_row + i;
        scratch.rows[i] = row < group.num_rows() ? pair_row(bias, group, row, span.first_key) : nullptr;
    }
    const RowSource source{scratch.rows, bias.key_stride, bias.dtype, span.num_rows, span.num_keys};
    ops.f32.pack_rows(source, scratch.bias, scratch.row_stride);
}

// One byte a key, for a whole number of vectors.
void gather_mask_row(const RowGroup& group, const TileSpan& span, int64_t row, uint8_t* allowed) {
    const PairTensor& mask = group.view->visibility.mask;
    const unsigned char* bytes = pair_row(mask, group, row, span.first_key);
    if (mask.dtype == DType::kBits) {
        for (int j = 0; j < span.num_keys; ++j) {
            const int64_t key = int64_t{span.first_key} + j;
            allowed[j] = bytes[key / 8 * mask.key_stride] >> (key % 8) & 1;
        }
    } else if (mask.key_stride == 1) {
        std::memcpy(allowed, bytes, static_cast<size_t>(span.num_keys));
    } else {
        for (int j = 0; j < span.num_keys; ++j) allowed[j] = bytes[j * mask.key_stride];
    }
}

void gather_alibi(const RowGroup& group, const TileSpan& span, const ScoreScratch& scratch) {
    for (int i = 0; i < span.num_rows; ++i) {
        const int64_t row = span.first_row + i;
        if (row >= group.num_rows()) {
            scratch.alibi_slope[i] = scratch.alibi_position[i] = 0.0f;
            continue;
        }
        const ScoreModifier modifier = group.view->modifier_of(group.batch, group.head_of(row), group.sequence);
        scratch.alibi_slope[i] = modifier.alibi_slope;
        scratch.alibi_position[i] = static_cast<float>(group.query_of(row) + modifier.alibi_offset - span.first_key);
    }
}

// Four calls of the generator decide about 32 columns of a row.
void fill_keep_row(const Dropout& dropout, uint32_t batch_head, uint32_t query, const TileSpan& span, uint8_t* keep) {
    const int32_t end = span.first_key + span.num_keys;
    for (int32_t block = span.first_key / 32 * 32; block < end; block += 32)
        for (int32_t t = 0; t < 4; ++t) {
            const PhiloxBlock random =
                dropout_block(dropout.key, batch_head, query, static_cast<uint32_t>(block + 2 * t));
            for (int32_t group = 0; group < 32; group += 8)
                for (int32_t odd = 0; odd < 2; ++odd) {
                    const int32_t key = block + group + 2 * t + odd;
                    if (key < span.first_key || key >= end) continue;
                    const uint32_t slot = dropout_slot(static_cast<uint32_t>(key));
                    keep[key - span.first_key] = dropout_bits(random, slot) >= dropout.threshold;
                }
        }
}

}  // namespace

ScoreTraits score_traits(const Problem& problem) {
    ScoreTraits traits;
    traits.has_alibi = problem.has(Arg::kAlibiSlopes);
    traits.has_bias = problem.has(Arg::kBias);
    traits.has_mask = problem.has(Arg::kMask);
    traits.has_dropout = problem.score.dropout_p != 0.0f;
    traits.has_softcap = problem.score.softcap > 0.0f;
    return traits;
}

ScoreScratch carve_scores(Carver& carver, const ScoreTraits& traits, int num_rows, int64_t row_stride, bool backward) {
    const int64_t elements = num_rows * row_stride;
    ScoreScratch scratch;
    scratch.row_stride = row_stride;
    if (traits.has_bias) scratch.bias = carver.take<float>(elements);
    if (traits.has_mask) scratch.allowed = carver.take<uint8_t>(elements);
    if (traits.has_dropout) scratch.keep = carver.take<uint8_t>(elements);
    if (traits.has_softcap && backward) scratch.cap_derivative = carver.take<float>(elements);
    if (traits.has_alibi) {
        scratch.alibi_slope = carver.take<float>(num_rows);
        scratch.alibi_position = carver.take<float>(num_rows);
    }
    if (traits.has_bias) scratch.rows = carver.take<const void*>(num_rows);
    return scratch;
}

float remaining_scale(const Problem& problem) {
    return score_traits(problem).modified() ? 1.0f : softmax_scale_of(problem);
}

void modify_tile(const TileOps& ops, const RowGroup& group, const TileSpan& span, const Interval* visible,
                 const ScoreScratch& scratch, float* scores) {
    const Problem& problem = group.view->launch.step->problem;
    const ScoreTraits traits = score_traits(problem);
    if (!traits.modified()) return;
    if (traits.has_bias) gather_bias(ops, group, span, scratch);
    if (traits.has_alibi) gather_alibi(group, span, scratch);
    if (traits.has_mask)
        for (int i = 0; i < span.num_rows && span.first_row + i < group.num_rows(); ++i)
            gather_mask_row(group, span, span.first_row + i, scratch.allowed + i * scratch.row_stride);
    ScoreTile tile;
    tile.scores = scores;
    tile.row_stride = scratch.row_stride;
    tile.visible = visible;
    tile.num_rows = span.num_rows;
    tile.softmax_scale = softmax_scale_of(problem);
    tile.softcap = problem.score.softcap;
    tile.alibi_slope = scratch.alibi_slope;
    tile.alibi_position = scratch.alibi_position;
    tile.bias = scratch.bias;
    tile.allowed = scratch.allowed;
    tile.cap_derivative = scratch.cap_derivative;
    ops.modify_scores(tile);
}

KeepTile keep_tile(const RowGroup& group, const TileSpan& span, const ScoreScratch& scratch) {
    const View& view = *group.view;
    if (view.score.dropout.threshold == 0) return {};
    for (int i = 0; i < span.num_rows; ++i) {
        const int64_t row = span.first_row + i;
        if (row >= group.num_rows()) break;
        const int64_t batch_head = group.batch * view.sizes.num_heads_q + group.head_of(row);
        fill_keep_row(view.score.dropout, static_cast<uint32_t>(batch_head), static_cast<uint32_t>(group.query_of(row)), span,
                      scratch.keep + i * scratch.row_stride);
    }
    return {scratch.keep, scratch.row_stride, view.score.dropout.keep_scale};
}

}  // namespace tilewise::cpu
