// Lengths of one sequence, resolved once. Dense, ragged (cu_seqlens), partly used (seqused), left padded and cached batches all end as
// a Sequence, and nothing after this file knows which of them it was.
//
// Keys are counted from the first valid one: seqlen_k excludes left padding, and key j lies at row first_key + j of its
// cache row (dense), of the packed tensor (ragged), or of the page table's logical rows (paged).
//
// Where these integers lie on a device nobody has checked them: whatever they are, the keys of a sequence lie in the cache.
#pragma once

#include "math/types.hpp"

namespace tilewise {

// int32 (batch) or (batch + 1); null: not given. Stride 0 repeats one value.
struct IntVector {
    const int32_t* data = nullptr;
    int64_t stride = 0;
    TILEWISE_HD bool given() const { return data != nullptr; }
    TILEWISE_HD int32_t operator[](int64_t i) const { return data[i * stride]; }
};

struct SequenceTable {
    IntVector cu_seqlens_q;     // (batch + 1): q is (total_q, h, d)
    IntVector cu_seqlens_k;     // (batch + 1): k is (total_k, hk, d)
    IntVector seqused_q;        // (batch)
    IntVector seqused_k;        // (batch): valid keys, left padding included
    IntVector leftpad_k;        // (batch): keys to skip at the start
    IntVector cache_batch_idx;  // (batch): row of a dense cache, or of the page table
    int64_t cache_rows = int64_t{1} << 31;
    int64_t seqlen_q = 0;  // rows of a dense q
    int64_t seqlen_k = 0;  // rows of a dense k, or max_pages * page_size
};

struct Sequence {
    int64_t q_batch = 0;  // index of the batch axis of q, o (0 when ragged)
    int64_t q_row = 0;    // row of query 0 on the row axis
    int64_t k_batch = 0;  // index of the batch axis of k, v, or of the page table's rows
    int64_t first_key = 0;
    int32_t seqlen_q = 0;
    int32_t seqlen_k = 0;
    int64_t allocated_q = 0;  // rows of this sequence in q, used or not: their gradients are written
    int64_t k_row = 0;        // first allocated key row
    int64_t allocated_k = 0;
};

TILEWISE_HD Sequence resolve_sequence(const SequenceTable& table, int64_t batch) {
    Sequence s;
    if (table.cu_seqlens_q.given()) {
        s.q_row = table.cu_seqlens_q[batch];
        s.allocated_q = table.cu_seqlens_q[batch + 1] - s.q_row;
    } else {
        s.q_batch = batch;
        s.allocated_q = table.seqlen_q;
    }
    if (table.cu_seqlens_k.given()) {
        s.k_row = table.cu_seqlens_k[batch];
        s.allocated_k = table.cu_seqlens_k[batch + 1] - s.k_row;
    } else {
        s.k_batch = batch;
        if (table.cache_batch_idx.given())
            s.k_batch = max_of<int64_t>(min_of<int64_t>(table.cache_batch_idx[batch], table.cache_rows - 1), 0);
        s.allocated_k = table.seqlen_k;
    }
    const int64_t used_q = table.seqused_q.given() ? table.seqused_q[batch] : s.allocated_q;
    const int64_t used_k = table.seqused_k.given() ? table.seqused_k[batch] : s.allocated_k;
    const int64_t leftpad = table.leftpad_k.given() ? max_of<int64_t>(table.leftpad_k[batch], 0) : 0;
    s.seqlen_q = static_cast<int32_t>(clamp_to<int64_t>(used_q, 0, s.allocated_q));
    s.first_key = s.k_row + leftpad;
    s.seqlen_k = static_cast<int32_t>(max_of<int64_t>(clamp_to<int64_t>(used_k, 0, s.allocated_k) - leftpad, 0));
    return s;
}

}  // namespace tilewise
