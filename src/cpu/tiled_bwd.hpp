// What the parts of the tiled backward pass share: the launch's context, one thread's tiles, and the two products and
// the element-wise step that turn a tile of keys and a block of rows into P and dS. tiled_bwd.cpp adds the three
// products of dQ, dK and dV; tiled_bwd_bias.cpp sums dS into the gradient of a bias; tiled_bwd_rows.cpp has what
// happens a row at a time, before and after.
#pragma once

#include "cpu/tiled_schedule.hpp"
#include "cpu/tiled_score.hpp"

namespace tilewise::cpu {

// What all units of a launch share.
struct Backward {
    const Step* step = nullptr;
    const TileOps* ops = nullptr;
    View view;
    float scale = 0;
    HeadTensor grad_o, grad_q, grad_k, grad_v;
    float* lse = nullptr;          // (h, total_q)
    float* delta = nullptr;        // (h, total_q): rowsum(dO * O) - grad_lse
    float* grad_q_sums = nullptr;  // (num_chunks, hk, packed rows, grad_q_stride), fp32; see grad_q_rows

    // Index of a query row in lse and delta.
    int64_t row_index(const Sequence& s, int64_t head_q, int64_t query) const {
        return head_q * view.sizes.total_q + s.q_batch * view.sizes.max_seqlen_q + s.q_row + query;
    }
    // Where the packed rows of a group begin in grad_q_sums.
    float* grad_q_rows(const RowGroup& group, int64_t chunk) const;
};

// Packed rows of one key-value head in grad_q_sums. Each sequence has some rows to spare: products write whole register
// tiles.
int64_t grad_q_rows_of_head(const Sizes& sizes, const TileOps& ops);
inline int64_t grad_q_stride(const Sizes& sizes, const TileOps& ops) { return round_up(sizes.head_dim, ops.width); }

struct BackwardStrides {
    int64_t d = 0, dv = 0, s = 0;  // of rows of head_dim, head_dim_v, tile_n columns
    int64_t k_panel = 0, v_panel = 0;
};
// One thread's memory.
struct BackwardScratch {
    BackwardStrides stride;
    float *q = nullptr, *grad_o = nullptr;                     // (tile_m, ...)
    float *k_transposed = nullptr, *v_transposed = nullptr;    // panels
    float *k = nullptr, *grad_k = nullptr, *grad_v = nullptr;  // (tile_n, ...)
    float *s = nullptr, *dp = nullptr;                         // (tile_m, tile_n); then P and dS
};
struct BackwardRows {
    Interval *intervals = nullptr, *visible = nullptr;
    float *lse = nullptr, *delta = nullptr;
    float* factor = nullptr;  // (tile_n)
    void** addresses = nullptr;
    ScoreScratch score;
};

class BackwardTiles {
public:
    BackwardTiles(const Backward& backward, Carver& carver) : BackwardTiles(*backward.step, *backward.ops, carver) {
        backward_ = &backward;
    }
    // Only places the memory.
    BackwardTiles(const Step& step, const TileOps& ops, Carver& carver);

    // Packs the keys of a tile, K also row by row.
    void load_keys(const RowGroup& group, Interval keys);
    // Finds what a block of rows sees of the loaded keys. If nothing, false; otherwise loads the rows.
    bool load_rows(const RowGroup& group, int64_t first_row, int num_rows);
    // Leaves P (dropped) in tiles.s and dS in tiles.dp, for the columns of span(); dS of the product, or of the score
    // that the bias was added to.
    void differentiate(const RowGroup& group, bool of_product);

    // Rows and keys of the tile in hand, cut to what is seen and widened to whole panels on the left.
    const TileSpan& span() const { return span_; }
    // The first column of the span among the loaded keys.
    int first_column() const { return span_.first_key - keys_.begin; }
    // Columns as the products see them.
    int padded_columns() const { return static_cast<int>(round_up(span_.num_keys, ops_->width)); }

    BackwardScratch tiles;
    BackwardRows rows;

private:
    Product score_product(int num_columns) const;

    const Backward* backward_ = nullptr;
    const TileOps* ops_;
    Interval keys_;
    TileSpan span_;
};

// Number of chunks that the keys of a head are cut into, each with its own sum of dQ.
int32_t chunks_for(const Step& step, int64_t threads);

// tiled_bwd_rows.cpp
constexpr int kRowsOfTask = 64;
// lse and delta of every row.
void prepare_rows(const Backward& backward, const Schedule& schedule);
// Zeros for rows of grad_q, grad_k, grad_v that no sequence uses.
void clear_unused_rows(const Backward& backward);
// grad_q = softmax_scale * sum over chunks.
void finish_grad_q(const Backward& backward, const Schedule& schedule);
void compute_grad_sink(const Backward& backward, const Arguments& arguments);
// tiled_bwd_bias.cpp; `scratch`: scratch_bytes for each thread.
int64_t bias_scratch_bytes(const Step& step, const TileOps& ops);
void compute_grad_bias(const Backward& backward, const Arguments& arguments, unsigned char* scratch, int64_t bytes);

}  // namespace tilewise::cpu
