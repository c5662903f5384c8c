// What happens between Q K^T and the softmax on a tile, and dropout: gathers bias, boolean mask, ALiBi numbers and
// dropout decisions of the tile's rows and keys into scratch and hands them to the tile functions. A problem without
// modifiers skips all of it and keeps its softmax scale in the exponent.
#pragma once

#include "cpu/tiled_rows.hpp"

namespace tilewise::cpu {

// Tiles of num_rows x row_stride; a null one is not needed by the problem.
struct ScoreScratch {
    int64_t row_stride = 0;
    float* bias = nullptr;
    uint8_t* allowed = nullptr;
    uint8_t* keep = nullptr;
    float* cap_derivative = nullptr;
    float* alibi_slope = nullptr;
    float* alibi_position = nullptr;
    const void** rows = nullptr;
};

// What decides about a problem's scores, read from it once.
struct ScoreTraits {
    bool has_alibi = false, has_bias = false, has_mask = false, has_dropout = false, has_softcap = false;
    bool modified() const { return has_alibi || has_bias || has_mask || has_softcap; }
};
ScoreTraits score_traits(const Problem& problem);

// Room for tiles of num_rows x row_stride; `backward` adds what a gradient needs.
ScoreScratch carve_scores(Carver& carver, const ScoreTraits& traits, int num_rows, int64_t row_stride, bool backward);

// What the scores still have to be multiplied with after modify_tile.
float remaining_scale(const Problem& problem);

// Applies the score modifiers in place; nothing to do without any. `scores` has the scratch's row stride.
void modify_tile(const TileOps& ops, const RowGroup& group, const TileSpan& span, const Interval* visible,
                 const ScoreScratch& scratch, float* scores);
// Dropout decisions of a tile.
KeepTile keep_tile(const RowGroup& group, const TileSpan& span, const ScoreScratch& scratch);

}  // namespace tilewise::cpu
