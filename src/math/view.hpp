// A call as its kernels see it: every tensor as a pointer with named strides (in elements), and what a row of queries needs to know
// of it. The same values serve the CPU's kernels and, passed by value at a launch, the GPU's.
//
// Axes of size 1 have stride 0, so that a broadcast axis and an axis with a meaningless stride are the same to every kernel.
#pragma once

#include "math/mask.hpp"
#include "math/paging.hpp"
#include "math/philox.hpp"
#include "math/score.hpp"
#include "math/sequence.hpp"

namespace tilewise {

// Common sizes of a valid attention problem (not of combine or append alone, where q and o may be missing: those fields are 0).
struct Sizes {
    int64_t batch = 0;
    int64_t num_heads_q = 0;
    int64_t num_heads_kv = 0;
    int64_t head_dim = 0;
    int64_t head_dim_v = 0;
    int64_t total_q = 0;       // rows of q over all sequences
    int64_t total_k = 0;       // rows of k; of the page table's reach when paged
    int64_t max_seqlen_q = 0;  // of one sequence: an upper bound when ragged
    int64_t max_seqlen_k = 0;
    int64_t page_size = 0;  // 0: not paged
    TILEWISE_HD int64_t gqa_ratio() const { return num_heads_kv > 0 ? num_heads_q / num_heads_kv : 1; }
};

// q, k, v, o and their gradients: (batch, row, head, dim); ragged: batch stride 0; paged: (page, slot, head, dim).
struct HeadTensor {
    void* data = nullptr;
    DType dtype = DType::kNone;
    int64_t batch_stride = 0;
    int64_t row_stride = 0;
    int64_t head_stride = 0;
    int64_t dim_stride = 0;
    TILEWISE_HD bool given() const { return data != nullptr; }
    TILEWISE_HD int64_t offset(int64_t batch, int64_t row, int64_t head) const {
        return batch * batch_stride + row * row_stride + head * head_stride;
    }
};

// lse and its gradient: (batch, head, row), f32 (f64 in the reference); ragged: batch stride 0.
struct RowTensor {
    void* data = nullptr;
    DType dtype = DType::kNone;
    int64_t batch_stride = 0;
    int64_t head_stride = 0;
    int64_t row_stride = 0;
    TILEWISE_HD bool given() const { return data != nullptr; }
    TILEWISE_HD int64_t offset(int64_t batch, int64_t head, int64_t row) const {
        return batch * batch_stride + head * head_stride + row * row_stride;
    }
};

// bias, its gradient and the boolean mask: (batch, head, row, key), stride 0 where broadcast.
struct PairTensor {
    void* data = nullptr;
    DType dtype = DType::kNone;
    int64_t batch_stride = 0;
    int64_t head_stride = 0;
    int64_t row_stride = 0;
    int64_t key_stride = 0;
    TILEWISE_HD bool given() const { return data != nullptr; }
    TILEWISE_HD int64_t offset(int64_t batch, int64_t head, int64_t row, int64_t key) const {
        return batch * batch_stride + head * head_stride + row * row_stride + key * key_stride;
    }
};

// int32 (batch, row) or (total rows): explicit key intervals.
struct RowIntTensor {
    const int32_t* data = nullptr;
    int64_t batch_stride = 0;
    int64_t row_stride = 0;
    TILEWISE_HD bool given() const { return data != nullptr; }
    TILEWISE_HD int32_t at(int64_t batch, int64_t row) const { return data[batch * batch_stride + row * row_stride]; }
};

// f32 (head) or (batch, head): ALiBi slopes; sinks.
struct HeadScalar {
    const float* data = nullptr;
    int64_t batch_stride = 0;
    int64_t head_stride = 0;
    TILEWISE_HD bool given() const { return data != nullptr; }
    TILEWISE_HD float at(int64_t batch, int64_t head) const { return data[batch * batch_stride + head * head_stride]; }
};

// Which keys a row sees: by position, by explicit intervals [key_begin, key_end) of the rows, and by a flag a (row, key) pair.
struct Visibility {
    MaskSpec positional;
    IntVector prefix_lens;  // (batch): in place of positional.prefix
    RowIntTensor key_begin, key_end;
    PairTensor mask;
};

struct PageTable {
    const int32_t* data = nullptr;  // (rows, max_pages); null: not paged
    int64_t row_stride = 0;
    int64_t page_stride = 0;
    int64_t page_size = 0;
    uint32_t last_page = 0x7fffffff;  // id of k's last page
};

struct Dropout {
    PhiloxKey key;
    uint32_t threshold = 0;   // 0: no dropout
    float keep_scale = 1.0f;  // 1 / (1 - dropout_p)
};

// What happens to a visible score, and to its probability.
struct ScoreView {
    float softmax_scale = 1.0f;
    float softcap = 0.0f;
    HeadScalar alibi_slopes;
    PairTensor bias;
    HeadScalar sink;
    Dropout dropout;
};

struct AttentionView {
    Sizes sizes;
    SequenceTable sequences;
    PageTable pages;
    HeadTensor q, k, v, o;
    RowTensor lse;
    Visibility visibility;
    ScoreView score;

    // Place of key `key` (counted from the first valid one) of a sequence in k and v.
    TILEWISE_HD KeyPlace place_of(const Sequence& s, int64_t key) const {
        const int64_t row = s.first_key + key;
        if (pages.data == nullptr) return {s.k_batch, row};
        KeyPlace place = paged_key(pages.data + s.k_batch * pages.row_stride, pages.page_stride, pages.page_size, row);
        place.page = page_within(place.page, pages.last_page);
        return place;
    }
    // The positional mask of one sequence, its own prefix included.
    TILEWISE_HD IntervalMask mask_of(int64_t batch, const Sequence& s) const {
        MaskSpec spec = visibility.positional;
        if (visibility.prefix_lens.given()) spec.prefix = visibility.prefix_lens[batch];
        return resolve_mask(spec, s.seqlen_q, s.seqlen_k);
    }
    // Keys that a row sees by position and by key_begin, key_end; the boolean mask comes on top.
    TILEWISE_HD Interval keys_of(const IntervalMask& positional, int64_t batch, const Sequence& s, int32_t row) const {
        Interval keys = row_interval(positional, row);
        const int64_t absolute = s.q_row + row;
        if (visibility.key_begin.given())
            keys = intersect(keys, {visibility.key_begin.at(batch, absolute), s.seqlen_k});
        if (visibility.key_end.given()) keys = intersect(keys, {0, visibility.key_end.at(batch, absolute)});
        return keys;
    }
    // False where the boolean mask hides the key; true without one.
    TILEWISE_HD bool mask_allows(int64_t batch, int64_t head_q, int64_t row, int64_t key) const {
        if (!visibility.mask.given()) return true;
        const PairTensor& pairs = visibility.mask;
        const auto* bytes = static_cast<const uint8_t*>(pairs.data);
        if (pairs.dtype == DType::kBits) return bytes[pairs.offset(batch, head_q, row, key / 8)] >> (key % 8) & 1;
        return bytes[pairs.offset(batch, head_q, row, key)] != 0;
    }
    TILEWISE_HD ScoreModifier modifier_of(int64_t batch, int64_t head_q, const Sequence& s) const {
        ScoreModifier m;
        m.softmax_scale = score.softmax_scale;
        m.softcap = score.softcap;
        if (score.alibi_slopes.given()) {
            m.alibi_slope = score.alibi_slopes.at(batch, head_q);
            m.alibi_offset = s.seqlen_k - s.seqlen_q;
        }
        return m;
    }
    // Sink of a query head; -inf without one.
    TILEWISE_HD float sink_of(int64_t head_q) const {
        return score.sink.given() ? score.sink.at(0, head_q) : negative_infinity();
    }
};

}  // namespace tilewise
