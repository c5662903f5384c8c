// What the tiled kernels ask of an instruction set: a table of functions on whole tiles, one table per set. The drivers
// (tiled_fwd.cpp, tiled_bwd.cpp) are compiled once, for the baseline CPU, and know sequences, masks and pages; the
// functions behind this table are compiled once per instruction set and know none of that. A call does thousands of
// operations, so the indirection costs nothing, and no code that could be shared by the linker is ever built with flags
// that the running CPU may lack.
//
// Tiles are fp32 and row-major unless said otherwise; `width` is the number of floats of a vector and a *panel* is two
// vectors wide.
#pragma once

#include "math/mask.hpp"
#include "math/types.hpp"

namespace tilewise::cpu {

// Rows of a tensor, wherever they lie. A null address stands for a row of zeros and is never read.
struct RowSource {
    const void* const* rows = nullptr;
    int64_t stride = 1;  // elements from one element of a row to the next
    DType dtype = DType::kF32;
    int num_rows = 0;
    int num_columns = 0;
};
// A null address is skipped.
struct RowTarget {
    void* const* rows = nullptr;
    int64_t stride = 1;
    DType dtype = DType::kF32;
    int num_rows = 0;
    int num_columns = 0;
};

// c (m x n) = a (m x k) * b (k x n), or c += with `accumulate`. m is a multiple of row_quantum, n of width; operands
// are in one of the two formats of ProductOps and strides count its elements.
struct Product {
    const void* a = nullptr;
    int64_t a_row = 0;
    int64_t a_k = 1;  // other than 1: `a` lies transposed, then a_row must be 1 (fp32 only)
    const void* b = nullptr;
    int64_t b_k = 0;      // from one k to the next; in bf16 from one pair of k to the next
    int64_t b_panel = 0;  // from one panel to the next
    float* c = nullptr;
    int64_t c_row = 0;
    int m = 0, n = 0, k = 0;
    bool accumulate = false;
};

// A number format of the operands of a product, and how rows are brought into it. Columns and rows past the source's
// are written as zeros up to the next multiple of width (of 2 along k).
struct ProductOps {
    DType format = DType::kF32;  // kF32, or kBF16: pairs along k, for dot-product instructions
    // a: row r at out + r * row_stride.
    void (*pack_rows)(const RowSource&, void* out, int64_t row_stride) = nullptr;
    // b = source transposed: columns of b are the source's rows. Panel p at out + p * panel_stride, k-major.
    void (*pack_transposed)(const RowSource&, void* out, int64_t panel_stride) = nullptr;
    // b = source: k counts its rows. Same layout.
    void (*pack_panels)(const RowSource&, void* out, int64_t panel_stride) = nullptr;
    void (*multiply)(const Product&) = nullptr;
};

// Kept columns of a tile, one byte each, and 1 / (1 - dropout_p); null: no dropout.
struct KeepTile {
    const uint8_t* keep = nullptr;
    int64_t row_stride = 0;
    float scale = 1.0f;
};

// In place: products of q and k become scores (see math/score.hpp), -inf where `allowed` is 0. Only visible columns are
// defined afterwards.
struct ScoreTile {
    float* scores = nullptr;
    int64_t row_stride = 0;
    const Interval* visible = nullptr;  // columns of the tile that each row sees
    int num_rows = 0;
    float softmax_scale = 1.0f;
    float softcap = 0.0f;
    const float* alibi_slope = nullptr;     // a row; null: none
    const float* alibi_position = nullptr;  // a row: the column at distance 0
    const float* bias = nullptr;            // row stride as the scores'
    const uint8_t* allowed = nullptr;       // bytes, row stride as the scores'
    float* cap_derivative = nullptr;  // out, row stride as the scores': d(softcap) / d(argument); null: not wanted
};

// Running softmax of rows over tiles: p = 2^((score - row_max) * scale_log2).
struct SoftmaxTile {
    const float* scores = nullptr;
    void* probabilities =
        nullptr;             // out, may be `scores`; fp32, or bf16 where `format` says so; 0 in invisible columns
    int64_t row_stride = 0;  // of both, in elements
    const Interval* visible = nullptr;
    int num_rows = 0;
    int num_columns = 0;
    float scale_log2 = 1.0f;
    DType format = DType::kF32;
    DType rounding = DType::kF32;  // the values are rounded to this type
    KeepTile dropout;
    float* row_max = nullptr;  // in, out; of the scores as they are, before the scale
    float* row_sum = nullptr;  // in, out; of probabilities before rounding and dropout
};

// Backward, in place: scores become dropped probabilities exp(scale * score - lse), dp becomes
// ds = p * (dp' - delta) * cap_derivative.
struct GradientTile {
    float* scores = nullptr;
    float* dp = nullptr;
    const float* cap_derivative = nullptr;
    int64_t row_stride = 0;  // of all three
    const Interval* visible = nullptr;
    int num_rows = 0;
    int num_columns = 0;
    float scale = 1.0f;
    KeepTile dropout;
    const float* lse = nullptr;    // a row
    const float* delta = nullptr;  // a row
};

struct TileOps {
    int width = 0;
    int row_tile = 0;     // rows of the product's register tile
    int row_quantum = 0;  // row_tile is a multiple of it
    ProductOps f32;
    ProductOps bf16;  // of bf16 inputs; the same as f32 where the set has no instruction for pairs
    void (*modify_scores)(const ScoreTile&) = nullptr;
    // Also writes to `rescale` what the rows' earlier output has to be multiplied with.
    void (*softmax)(const SoftmaxTile&, float* rescale) = nullptr;
    void (*gradient)(const GradientTile&) = nullptr;
    // tile row r *= factor[r]; rows with factor 1 are not touched.
    void (*scale_rows)(float* tile, int64_t row_stride, int num_rows, int num_columns, const float* factor) = nullptr;
    // Stores factor[r] * tile row r, rounded once; a factor of 0 gives zeros whatever the tile holds.
    void (*store_rows)(const float* tile, int64_t row_stride, const float* factor, const RowTarget&) = nullptr;
    // out[r] = a row r . b row r
    void (*dot_rows)(const RowSource& a, const RowSource& b, float* out) = nullptr;
};

}  // namespace tilewise::cpu
