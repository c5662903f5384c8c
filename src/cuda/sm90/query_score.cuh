// S and dP of a warpgroup's 64 rows -> dS, in wgmma's accumulators: element 4 j + 2 r + e of a thread is row r of it, and key 8 j + 2 (lane % 4) + e
// of the step.
#pragma once

#include "cuda/attend/modified_pair.cuh"
#include "cuda/attend/visit.cuh"
#include "cuda/sm90/bwd_block.cuh"
#include "cuda/sm90/bwd_score.cuh"
#include "cuda/sm90/epilogue.cuh"
#include "cuda/sm90/mask.cuh"
#include "cuda/sm90/twopass_traits.hpp"

namespace tilewise::cuda::sm90 {

// What a block of the pass over queries computes: 128 rows of a head against the keys that they see. In shared memory.
struct RowBlock {
    RowTile tile;
    IntervalMask mask;
    KeyTiles keys;
    KeyTiles interior[kTwoPassGroups];  // seen whole by all rows of the warpgroup
    int64_t first_stat = 0;             // place of row 0 in delta and lse_log2
};
static_assert(sizeof(RowBlock) <= kTwoPassBlockBytes);

// A row, in shared memory: registers are short.
struct QueryRow {
    Interval keys;
    float shift = 0.0f;  // kLift - lse in base 2; -inf for a row that sees nothing or does not exist
    float delta = 0.0f;
};
template <class Traits>
__device__ inline void describe_rows(const BulkBackwardParams& params, const RowBlock& block, unsigned char* shared) {
    const RowTile& t = block.tile;
    for (int32_t row = static_cast<int32_t>(threadIdx.x); row < Traits::kRows; row += Traits::kThreads) {
        QueryRow x = {{0, 0}, negative_infinity(), 0.0f};
        if (row < t.num_rows)
            x = {params.base.view.keys_of(block.mask, t.batch, t.sequence, t.first_row + row),
                 kLift<typename Traits::Element> - params.rows.lse_log2[block.first_stat + row],
                 params.rows.delta[block.first_stat + row]};
        *reinterpret_cast<QueryRow*>(shared + Traits::kRowsOffset + 16 * row) = x;
    }
}

struct QueryStep {
    const BulkBackwardParams& params;
    const RowBlock& block;
    uint32_t rows;      // address of the thread's first row; the other one is 8 further
    int32_t first_row;  // of the thread
    int32_t first_key;
    bool is_masked;

    __device__ __forceinline__ QueryRow row(int r) const {
        const uint4 x = ptx::load_shared_16(rows + 128 * r);
        return {{static_cast<int32_t>(x.x), static_cast<int32_t>(x.y)}, __uint_as_float(x.z), __uint_as_float(x.w)};
    }
};

// S and dP -> dS as an A operand, without the scale of the scores. kMasked: some pair is not visible; its dP may be anything.
template <class Element, bool kMasked, int kCount>
__device__ __forceinline__ void plain_query_scores(const float (&s)[kCount], const float (&dp)[kCount],
                                                   uint32_t (&ds)[kCount / 2], const QueryStep& at) {
    const float scale = at.params.base.score_scale;
    const int32_t column = static_cast<int32_t>(threadIdx.x) % 4 * 2 + at.first_key;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const QueryRow row = at.row(r);
        const uint32_t begin = static_cast<uint32_t>(row.keys.begin - column);
        const uint32_t length = static_cast<uint32_t>(row.keys.end - row.keys.begin);
#pragma unroll
        for (int j = 0; j < kCount / 4; ++j) {
            float x[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int i = 4 * j + 2 * r + e;
                const float p = ptx::exp2(fmaf(s[i], scale, row.shift));
                x[e] = kUnlift<Element> * p * (dp[i] - row.delta);
                if (kMasked && 8 * j + e - begin >= length) x[e] = 0.0f;
            }
            ds[2 * j + r] = tile::Products<Element>::pack(x[0], x[1]);
        }
    }
}

template <class Element, int kCount>
__device__ inline void modified_query_scores(float (&s)[kCount], const float (&dp)[kCount], uint32_t (&ds)[kCount / 2],
                                             const QueryStep& at) {
    const AttentionView& view = at.params.base.view;
    const RowTile& t = at.block.tile;
    const Dropout& dropout = view.score.dropout;
    const int lane = static_cast<int>(threadIdx.x) % 32, head = t.first_head;
    const ScoreModifier modifier = view.modifier_of(t.batch, head, t.sequence);
    const uint32_t batch_head = static_cast<uint32_t>(t.batch * view.sizes.num_heads_q + head);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const QueryRow row = at.row(r);
        const int32_t query = t.first_row + at.first_row + 8 * r;
#pragma unroll
        for (int j = 0; j < kCount / 4; j += 4) {
            const int32_t first_key = at.first_key + 8 * j + lane % 4 * 2;
            PhiloxBlock random{};
            if (dropout.threshold > 0)
                random = dropout_block(dropout.key, batch_head, static_cast<uint32_t>(query),
                                       static_cast<uint32_t>(first_key));
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float x[2];
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int place = 4 * (j + i) + 2 * r + e;
                    const int32_t key = first_key + i * 8 + e;
                    ModifiedPair pair;
                    if (key >= row.keys.begin && key < row.keys.end)
                        pair = modified_pair<Element>(view, modifier, t.batch, {query, key, head},
                                                      {s[place], kLift<Element> - row.shift});
                    const bool is_kept = dropout_bits(random, static_cast<uint32_t>(2 * i + e)) >= dropout.threshold;
                    const float inner = is_kept ? fmaf(dropout.keep_scale, dp[place], -row.delta) : -row.delta;
                    x[e] = pair.p == 0.0f ? 0.0f : kUnlift<Element> * pair.p * pair.derivative * inner;
                }
                ds[2 * (j + i) + r] = tile::Products<Element>::pack(x[0], x[1]);
            }
        }
    }
}

}  // namespace tilewise::cuda::sm90
