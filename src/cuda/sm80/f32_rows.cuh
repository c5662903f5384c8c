// Which rows a block of the fp32 kernels has, what each query row sees, and the score of one (query, key) pair. Scores are natural
// logarithms here, with the accurate exp, log and tanh: fp32 callers get fp32 accuracy.
#pragma once

#include "cuda/sm80/f32_tile.cuh"

namespace tilewise::cuda::sm80 {

struct F32Place {
    int32_t batch = 0;
    int32_t head = 0;  // tile head: of packed query heads, or of keys
    int32_t split = 0;
    int64_t tile = 0;  // within the sequence
};

// Sequence b of a ragged batch gets the tiles from cu_seqlens[b] / rows + b on: at least as many as it needs, found by bisection.
__device__ inline F32Place f32_place(const TileMap& map, const IntVector& cu_seqlens) {
    F32Place place;
    int64_t block = blockIdx.x;
    place.split = static_cast<int32_t>(block % map.num_splits);
    block /= map.num_splits;
    place.tile = block % map.num_tiles;
    block /= map.num_tiles;
    place.head = static_cast<int32_t>(block % map.num_heads);
    place.batch = static_cast<int32_t>(block / map.num_heads);
    if (!map.ragged) return place;
    const int64_t rows = map.tile_m / map.packed_heads;
    int32_t low = 0, high = map.batch;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (cu_seqlens[middle] / rows + middle <= place.tile)
            low = middle;
        else
            high = middle;
    }
    place.batch = low;
    place.tile -= cu_seqlens[low] / rows + low;
    return place;
}

// Resolves the sequence of the block. Contains a barrier.
__device__ inline void resolve_in_shared(F32Shared& shared, const AttentionView& view, int32_t batch) {
    if (threadIdx.x == 0) {
        shared.sequence.batch = batch;
        shared.sequence.sequence = resolve_sequence(view.sequences, batch);
        shared.sequence.mask = view.mask_of(batch, shared.sequence.sequence);
    }
    __syncthreads();
}

// 64 packed rows: row r is query r / packed_heads of head first_head + r % packed_heads.
struct F32QueryTile {
    int64_t first_row = 0;
    int64_t num_rows = 0;  // in use, of at most tile_m
    int32_t packed_heads = 1;
    int32_t first_head = 0;
};

// Fills a description of 64 query rows; threads 0..63 each one. `second`: o or grad_o. Ends without a barrier.
__device__ inline void describe_queries(F32Queries& queries, F32Rows& rows, const AttentionView& view,
                                        const F32Sequence& s, const F32QueryTile& tile, const HeadTensor& second) {
    const int row = static_cast<int>(threadIdx.x);
    if (row >= kF32Tile) return;
    const int64_t packed = tile.first_row + row;
    const bool exists = row < tile.num_rows;
    const auto query = static_cast<int32_t>(exists ? packed / tile.packed_heads : 0);
    const auto head = static_cast<int32_t>(tile.first_head + (exists ? packed % tile.packed_heads : 0));
    const Sequence& q = s.sequence;
    queries.query[row] = query;
    queries.head[row] = head;
    queries.keys[row] = exists ? view.keys_of(s.mask, s.batch, q, query) : Interval{};
    rows.first[row] = exists ? view.q.offset(q.q_batch, q.q_row + query, head) : -1;
    rows.second[row] = exists ? second.offset(q.q_batch, q.q_row + query, head) : -1;
}

// Fills a description of the 64 keys from `first_key` on. Ends without a barrier.
__device__ inline void describe_keys(F32Rows& rows, const AttentionView& view, const F32Sequence& s, int32_t head_kv,
                                     int32_t first_key) {
    const int row = static_cast<int>(threadIdx.x);
    if (row >= kF32Tile) return;
    const int32_t key = first_key + row;
    const bool exists = key < s.sequence.seqlen_k;
    const KeyPlace place = exists ? view.place_of(s.sequence, key) : KeyPlace{0, 0};
    rows.first[row] = exists ? view.k.offset(place.page, place.slot, head_kv) : -1;
    rows.second[row] = exists ? view.v.offset(place.page, place.slot, head_kv) : -1;
}

// Tiles [begin, end) of keys that some described query sees. Contains barriers; what was described before is seen after it.
__device__ inline Interval visited_tiles(F32Shared& shared) {
    if (threadIdx.x == 0) {
        shared.visit[0] = kMaxSeqlen;
        shared.visit[1] = 0;
    }
    __syncthreads();
    if (threadIdx.x < kF32Tile) {
        const Interval keys = shared.queries.keys[threadIdx.x];
        if (!is_empty(keys)) {
            atomicMin(&shared.visit[0], keys.begin);
            atomicMax(&shared.visit[1], keys.end);
        }
    }
    __syncthreads();
    if (shared.visit[1] == 0) return {0, 0};
    return {shared.visit[0] / kF32Tile, (shared.visit[1] + kF32Tile - 1) / kF32Tile};
}

// True if one of the 64 described queries sees one of 64 keys. Every thread gets the answer; contains a barrier.
__device__ inline bool sees_any(const F32Queries& queries, int32_t first_key) {
    bool sees = false;
    if (threadIdx.x < kF32Tile) {
        const Interval keys = queries.keys[threadIdx.x];
        sees = keys.begin < first_key + kF32Tile && keys.end > first_key && !is_empty(keys);
    }
    return __syncthreads_or(sees) != 0;
}

struct F32Score {
    float score = negative_infinity();  // -inf: hidden
    float derivative = 1.0f;            // d(score) / d(softmax_scale * product)
};

__device__ inline F32Score score_of(const AttentionView& view, const F32Sequence& s, const F32Queries& queries, int row,
                                    int32_t key, float product) {
    F32Score result;
    const Interval keys = queries.keys[row];
    const int32_t head = queries.head[row], query = queries.query[row];
    if (key < keys.begin || key >= keys.end || !view.mask_allows(s.batch, head, query, key)) return result;
    const ScoreModifier modifier = view.modifier_of(s.batch, head, s.sequence);
    result.score = modifier.softmax_scale * product;
    if (modifier.softcap > 0.0f) {
        const float x = result.score / modifier.softcap;
        const float r = 1.0f / (1.0f + expf(2.0f * fabsf(x)));
        result.score = modifier.softcap * tanhf(x);
        result.derivative = 4.0f * r * (1.0f - r);  // 1 - tanh^2 without its cancellation
    }
    if (modifier.alibi_slope != 0.0f) result.score += alibi_term<float>(modifier, query, key);
    const PairTensor& bias = view.score.bias;
    if (bias.given()) result.score += load_real(bias.data, bias.dtype, bias.offset(s.batch, head, query, key));
    return result;
}

__device__ inline bool keeps(const AttentionView& view, const F32Sequence& s, const F32Queries& queries, int row,
                             int32_t key) {
    const Dropout& dropout = view.score.dropout;
    if (dropout.threshold == 0) return true;
    const int64_t batch_head = s.batch * view.sizes.num_heads_q + queries.head[row];
    const PhiloxBlock block = dropout_block(dropout.key, static_cast<uint32_t>(batch_head),
                                            static_cast<uint32_t>(queries.query[row]), static_cast<uint32_t>(key));
    // dropout_bits, without an index into registers.
    const uint32_t slot = dropout_slot(static_cast<uint32_t>(key));
    const uint32_t low = slot < 2 ? block.word[0] : block.word[1], high = slot < 6 ? block.word[2] : block.word[3];
    return ((slot < 4 ? low : high) >> (16 * (slot & 1u)) & 0xffffu) >= dropout.threshold;
}

}  // namespace tilewise::cuda::sm80
