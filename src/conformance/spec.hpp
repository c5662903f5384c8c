// A problem in words: sizes, lengths, mask, score, cache, layout, data. No memory and no numbers yet; instance.hpp makes those from it. Test
// cases, random problems and the command line all start here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tilewise/tilewise.hpp"

namespace tilewise::conformance {

struct SizesSpec {
    int64_t batch = 2;
    int64_t seqlen_q = 65;   // rows of a dense q
    int64_t seqlen_k = 129;  // rows of a dense k or of one cache row
    int64_t heads_q = 4;
    int64_t heads_kv = 2;
    int64_t head_dim = 32;
    int64_t head_dim_v = 32;
};

// One entry a sequence where given.
struct LengthsSpec {
    std::vector<int> rows_q, rows_k;  // ragged
    std::vector<int> used_q, used_k, leftpad;
    int spare_rows = 0;   // rows of a ragged tensor behind the last sequence
    bool bounds = false;  // max_seqlen_q and max_seqlen_k are given
};

// A tensor (batch, head, row, key) and the axes along which it has one value.
enum Axes : uint32_t { kBatchAxis = 1, kHeadAxis = 2, kRowAxis = 4, kKeyAxis = 8 };
struct PairSpec {
    bool given = false;
    uint32_t broadcast = 0;      // Axes
    bool stride_zero = false;    // full size with stride 0, otherwise size 1
    DType dtype = DType::kNone;  // kNone: that of q (bias), bytes (mask)
};

struct MaskSpec {
    bool causal = false;
    bool top_left = false;
    std::optional<int64_t> left{}, right{};
    int chunk = 0;
    int block = 0;
    int prefix = 0;
    std::vector<int> prefix_lens;
    PairSpec mask;
    bool intervals = false;  // random key_begin, key_end
};

struct ScoreSpec {
    std::optional<float> scale{};
    float softcap = 0;
    float dropout_p = 0;
    uint64_t dropout_seed = 0;
    uint64_t dropout_offset = 0;
    int alibi_rank = 0;  // 1: slopes of heads, 2: of (batch, head)
    PairSpec bias;
    bool sink = false;
};

struct CacheSpec {
    int page_size = 0;         // 0: not paged
    bool batch_idx = false;    // more cache rows than sequences, in another order
    std::vector<int> lengths;  // cache_seqlens, of decode and append
    int new_rows = 0;
    std::vector<int> ragged_new;  // new rows of each sequence, instead of new_rows
    int rotary_dim = 0;
    bool rotary_interleaved = false;
    bool rotary_f32 = true;  // tables in f32, otherwise of k's type
    std::vector<int> rotary_seqlens;
    bool appends() const { return new_rows > 0 || !ragged_new.empty(); }
};

enum class Layout {
    kContiguous,
    kHeadsFirst,   // stored (batch, head, row, dim)
    kPaddedRows,   // rows further apart, as slices of a packed qkv are; integer vectors with stride 2
    kStridedDim,   // every second element
    kDimFirst,     // stored (batch, head, dim, row); bias and mask with keys before rows
    kUnaligned,    // one element off any alignment
    kSharedHeads,  // one head for all by stride 0
    kSharedBatch,  // one sequence for all by stride 0
};

enum class Data {
    kNormal,
    kVeryNegative,  // every score is near -1e5
    kOutlier,       // one channel holds 1 against -120 sqrt(d)
    kZeros,
    kLarge,     // near the largest f16
    kNaNKey,    // one key in the middle is NaN
    kNaNValue,  // one value in the middle is NaN
};

struct RunSpec {
    int num_splits = 0;
    int num_threads = 0;
    bool deterministic = false;
    bool batch_invariant = false;
    bool lse = true;
    bool grad_lse = false;
};

struct ProblemSpec {
    Op op = Op::kForward;  // kCombine has a form of its own, see combine_case.hpp
    SizesSpec sizes;
    LengthsSpec lengths;
    MaskSpec mask;
    ScoreSpec score;
    CacheSpec cache;
    Layout layout = Layout::kContiguous;         // of inputs
    Layout output_layout = Layout::kContiguous;  // of o and the gradients
    Data data = Data::kNormal;
    RunSpec run;
    uint64_t seed = 1;
};

// One line that names everything that is not a default.
std::string to_string(const ProblemSpec& spec);

}  // namespace tilewise::conformance
