// What the append kernel reads; filled by append.cpp.
#pragma once

#include "cuda/shared/tokens.hpp"
#include "math/rotary.hpp"

namespace tilewise::cuda {

// One of the tables (positions, rotary_dim / 2).
struct RotaryTable {
    const void* data = nullptr;
    int64_t position_stride = 0;
    int64_t pair_stride = 0;
};
struct Rotary {
    RotaryTable cos, sin;
    DType dtype = DType::kNone;
    int32_t dim = 0;  // 0: no rotation
    bool interleaved = false;
    bool rotates_by_row = false;  // query rows stand at their own places
    int64_t num_positions = 0;
};

struct CacheLengths {
    IntVector cache_seqlens;
    IntVector rotary_seqlens;  // given: the first positions, in place of cache_seqlens
    int32_t* total_seqlens = nullptr;
};

// What writes must stay inside of.
struct CacheLimits {
    int64_t capacity = 0;    // rows of one sequence
    int64_t cache_rows = 0;  // of a dense cache, or of the page table
    int64_t num_pages = 0;
};

struct AppendParams {
    AttentionView view;  // k and v are the cache
    HeadTensor k_new, v_new, q_rotated;
    Tokens new_tokens;
    Tokens query_tokens;  // count 0: no queries to rotate
    CacheLengths lengths;
    CacheLimits limits;
    Rotary rotary;
    int32_t* error_flag = nullptr;
};

constexpr int kAppendThreads = 128;
const void* append_entry(DType dtype);

}  // namespace tilewise::cuda
