// What a launch of the decode of one token hands to the kernel: only numbers that a block's first instructions use, side by side, since each
// line of constant memory that a block touches first costs it a miss; and divisions as multiplications, since a 32-bit one takes 40 cycles
// and a 64-bit one 150.
#pragma once

#include "cuda/common/params.hpp"

namespace tilewise::cuda::sm80 {

// n / value for n < 2^31, value > 0.
struct Divisor {
    uint32_t value = 1;
    uint32_t magic = 0;  // 2^(32 + shift) / value, rounded up
    uint32_t shift = 0;  // 2^shift < value <= 2^(shift + 1)
    static Divisor of(int64_t value) {
        Divisor d;
        d.value = static_cast<uint32_t>(max_of<int64_t>(value, 1));
        while ((uint64_t{2} << d.shift) < d.value) ++d.shift;
        d.magic = static_cast<uint32_t>(((uint64_t{1} << (32 + d.shift)) + d.value - 1) / d.value);
        return d;
    }
    TILEWISE_HD uint32_t divide(uint32_t n) const {
        return value == 1 ? n : static_cast<uint32_t>(uint64_t{n} * magic >> 32) >> shift;
    }
};

// k or v: the first of this launch's columns of key 0 of head 0.
struct TokenKeys {
    const char* data = nullptr;
    int64_t batch_bytes = 0;  // 0 where all sequences lie in one run of rows: ragged, paged
    int64_t head_bytes = 0;
    uint32_t row_bytes = 0;
    int32_t num_columns = 0;
};

// As SequenceTable, for sequences of one query.
struct TokenLengths {
    int32_t seqlen_k = 0;
    int32_t window_left = kUnlimited;
    bool vary = false;  // some of the vectors below are given
    int32_t last_cache_row = 0;
    IntVector cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, leftpad_k, cache_batch_idx;
};

struct TokenPages {
    const int32_t* data = nullptr;
    int64_t row_stride = 0;
    int64_t page_stride = 0;
    Divisor page_size;
    uint32_t page_rows = 0;  // from one page to the next, as a number of rows
    uint32_t last_page = 0;
};

struct TokenWork {
    Divisor blocks;  // by the number of tiles; by that of splits where the splits of a tile are neighbours
    Divisor tiles;   // row tiles of a key head
    Divisor heads_kv;
    Divisor splits;
    Divisor min_split;  // units of keys; a tile with fewer keys uses fewer splits
    int32_t gqa_ratio = 1;
    bool clustered = false;  // the splits of a tile are a cluster of blocks
    bool once = true;        // keys are read by one tile
};

// Rows of q, o and lse: one a sequence.
struct TokenRows {
    const char* q = nullptr;
    char* o = nullptr;     // the first of this launch's columns
    float* lse = nullptr;  // null: not wanted, or another launch's
    const float* sink = nullptr;
    int64_t q_row_bytes = 0, q_head_bytes = 0;
    int64_t o_row_bytes = 0, o_head_bytes = 0;
    int64_t lse_row = 0, lse_head = 0;
    int64_t sink_stride = 0;
};

// As PartialOutput, from this launch's first column on. Given whenever there are splits: where the kernel was compiled for a GPU without
// clusters, parts go through memory whatever the plan says.
struct TokenParts {
    float* o = nullptr;
    float* lse = nullptr;
    uint64_t* counters = nullptr;
    int64_t num_rows = 0;
    int32_t row_floats = 0;
    bool first_columns = true;  // lse is this launch's to write
};

struct TokenParams {
    TokenWork work;
    TokenLengths lengths;
    TokenKeys k, v;
    TokenPages pages;
    float score_scale = 0.0f;
    TokenRows rows;
    TokenParts parts;
};

}  // namespace tilewise::cuda::sm80
