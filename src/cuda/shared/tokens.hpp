// Rows of a (batch, row, head, dim) or (total rows, head, dim) tensor, counted over the whole tensor ("tokens"), and the sequence that each
// belongs to. What walks over memory and not over sequences starts here: a wrong length on the device can then lead to a wrong
// row, but never out of the tensor.
#pragma once

#include "math/view.hpp"

namespace tilewise::cuda {

struct Tokens {
    IntVector cu_seqlens;        // given: ragged
    int64_t rows_per_batch = 0;  // of a dense tensor
    int64_t count = 0;
    int64_t num_sequences = 0;
};

struct TokenPlace {
    int64_t sequence = -1;  // -1: of none
    int64_t row = 0;        // within the sequence
    int64_t tensor_batch = 0;
    int64_t tensor_row = 0;
};

TILEWISE_HD TokenPlace place_of_token(const Tokens& tokens, int64_t token) {
    if (!tokens.cu_seqlens.given()) {
        const int64_t batch = token / tokens.rows_per_batch;
        const int64_t row = token - batch * tokens.rows_per_batch;
        return {batch, row, batch, row};
    }
    const int64_t count = tokens.num_sequences;
    if (count == 0 || token < tokens.cu_seqlens[0] || token >= tokens.cu_seqlens[count]) return {-1, 0, 0, token};
    // The last sequence that starts at or before the token; empty ones before it start there too.
    int64_t low = 0, high = count;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (tokens.cu_seqlens[middle] <= token)
            low = middle;
        else
            high = middle;
    }
    return {low, token - tokens.cu_seqlens[low], 0, token};
}

// Tokens of q, o and their gradients; of k, v and theirs (not paged).
TILEWISE_HD Tokens query_tokens(const AttentionView& view) {
    return {view.sequences.cu_seqlens_q, view.sizes.max_seqlen_q, view.sizes.total_q, view.sizes.batch};
}
TILEWISE_HD Tokens key_tokens(const AttentionView& view) {
    return {view.sequences.cu_seqlens_k, view.sizes.max_seqlen_k, view.sizes.total_k, view.sizes.batch};
}

// False for a query row that no sequence uses: past seqused_q, past the last sequence.
TILEWISE_HD bool is_used_query(const AttentionView& view, const TokenPlace& place) {
    if (place.sequence < 0) return false;
    return !view.sequences.seqused_q.given() || place.row < view.sequences.seqused_q[place.sequence];
}
// False for a key row that no sequence sees: left padding, past seqused_k, past the last sequence.
TILEWISE_HD bool is_used_key(const AttentionView& view, const TokenPlace& place) {
    if (place.sequence < 0) return false;
    const Sequence s = resolve_sequence(view.sequences, place.sequence);
    const int64_t key = s.k_row + place.row - s.first_key;
    return key >= 0 && key < s.seqlen_k;
}

}  // namespace tilewise::cuda
