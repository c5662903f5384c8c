// What a launch hands to a kernel, by value: plain numbers and pointers, filled on the host, read from constant memory.
#pragma once

#include "math/view.hpp"

namespace tilewise::cuda {

// Which rows a block computes. A block's number is folded over (section of heads, row tile, head of the section): blocks with equal
// tiles of a section's heads are neighbours, longest first, so that a section's keys stay in the second-level cache.
struct TileMap {
    int32_t tile_m = 0;             // packed rows of a tile
    int32_t packed_heads = 1;       // query heads whose rows lie in one tile: 1, or the GQA ratio
    int32_t num_heads = 0;          // tile heads a sequence: num_heads_q / packed_heads
    int32_t gqa_ratio = 1;          // query heads a key head
    int32_t heads_per_section = 1;  // (sequence, head) pairs whose tiles are interleaved
    int64_t num_tiles = 0;          // row tiles a head: of a sequence (dense), of all sequences (ragged)
    int64_t num_sequences = 0;      // dense: batch; ragged: 1, the tile says which
    int32_t batch = 0;
    int32_t num_splits = 1;  // key ranges a row tile
    bool ragged = false;     // tiles count through all sequences, see find_sequence
};

// Where the partial results of a split forward go: f32, row = (q's batch index, q's row, head) flattened.
struct PartialOutput {
    float* o = nullptr;    // (num_splits, rows, head_dim_v)
    float* lse = nullptr;  // (num_splits, rows)
    int64_t num_rows = 0;
    int64_t rows_per_batch = 0;  // row axis of q; 0 when ragged
    // Decode: one word a row tile (blocks / num_splits), with which the last block of a tile knows that it is the last and merges the splits
    // itself. Any value is fine at first; null: a combine follows.
    uint64_t* counters = nullptr;
    int32_t min_split_keys =
        0;  // decode with counters: a row tile uses fewer splits where they would get fewer keys than this
};

// The head dimensions of a launch, and which tensors allow 16-byte accesses (base, strides and head dimension agree).
struct HeadDims {
    int32_t head_dim = 0;
    int32_t head_dim_v = 0;  // of this launch: columns [first_column_v, first_column_v + head_dim_v) of v and o
    int32_t first_column_v = 0;
    bool vector_q = false;
    bool vector_k = false;
    bool vector_v = false;
    bool vector_o = false;
};

// A softmax moves the reference of a row when its maximum passed it by more than this, as a base-2 logarithm.
constexpr float kSlack = 8.0f;

struct ForwardParams {
    AttentionView view;
    TileMap tiles;
    PartialOutput partial;
    HeadDims dims;
    float score_scale = 0.0f;  // what a raw (or modified) score is multiplied with to be a base-2 logarithm
};

struct Gradients {
    HeadTensor o, q, k, v;
    RowTensor lse;
    PairTensor bias;
};

// f32 scratch of a backward, all in the workspace. Row = as in PartialOutput.
struct BackwardScratch {
    float* dq = nullptr;  // (rows, head_dim): sums of dQ
    // Sums of a part of a GQA group: (tiles.num_splits, key rows, num_heads_kv, head_dim); null where a block writes grad_k itself.
    float* dk = nullptr;
    float* dv = nullptr;
    // (q batch, head, q row), so that the rows of a tile lie side by side.
    float* delta = nullptr;     // rowsum(dO * O) - grad_lse
    float* lse_log2 = nullptr;  // lse in base 2; +inf for a row that sees no key
    int32_t* order = nullptr;   // turn of each row tile, for a repeatable dQ; null: any order
    int64_t num_rows = 0;
    int64_t rows_per_batch = 0;  // row axis of q; 0 when ragged
    int64_t head_rows = 0;       // row axis of delta and lse_log2: of q, all rows when ragged
    TILEWISE_HD int64_t value_index(const Sizes& sizes, int64_t q_batch, int64_t head, int64_t row) const {
        return (q_batch * sizes.num_heads_q + head) * head_rows + row;
    }
};

struct BackwardParams {
    AttentionView view;
    TileMap tiles;  // tiles of keys
    Gradients grad;
    BackwardScratch scratch;
    HeadDims dims;
    float score_scale = 0.0f;
};

}  // namespace tilewise::cuda
