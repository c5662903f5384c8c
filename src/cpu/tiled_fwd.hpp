// What the parts of the tiled forward pass share: the launch's context and one thread's memory. tiled_fwd.cpp computes,
// tiled_fwd_layout.cpp chooses tiles, splits and threads and places the scratch, tiled_split.cpp merges splits.
#pragma once

#include "cpu/tiled_score.hpp"
#include "cpu/tiled_split.hpp"

namespace tilewise::cpu {

// Rows of a strip: two register tiles share each panel of K and V that is fetched from the second-level cache.
inline int strip_rows(const TileOps& ops) { return 2 * ops.row_tile; }

inline const ProductOps& products_of(const TileOps& ops, DType dtype) {
    return dtype == DType::kBF16 ? ops.bf16 : ops.f32;
}

// What all units of a launch share.
struct Forward {
    const Step* step = nullptr;
    View view;
    const TileOps* ops = nullptr;
    const ProductOps* products = nullptr;
    SplitOutput splits;
    float scale = 0;
};

// One thread's memory. Packed operands are in the format of the products: fp32, or bf16 where the instruction set
// multiplies that.
struct ForwardScratch {
    int64_t q_stride = 0, s_stride = 0, o_stride = 0;  // rows
    int64_t k_panel = 0, v_panel = 0;                  // panels
    unsigned char *q = nullptr, *k = nullptr, *v = nullptr;
    float* o = nullptr;
    float* s = nullptr;
    unsigned char* p = nullptr;  // bf16 probabilities; fp32 ones replace the scores
};

struct RowScratch {
    float *row_max = nullptr, *row_sum = nullptr, *factor = nullptr;
    Interval *intervals = nullptr, *visible = nullptr;
    void** addresses = nullptr;
    ScoreScratch score;
};

ForwardScratch carve_tiles(Carver& carver, const Step& step, const TileOps& ops);
RowScratch carve_rows(Carver& carver, const Step& step, const TileOps& ops);
// Of one thread.
int64_t forward_scratch_bytes(const Step& step, const TileOps& ops);

}  // namespace tilewise::cpu
