// What happens to a tile of scores between Q K^T and the softmax, and to its probabilities after it. Element (r, n, e) of a thread's
// m16n8 accumulators is packed row first_row + r / 2 * 16 + r % 2 * 8 + lane / 4, key first_key + 8 n + 2 (lane % 4) + e.
#pragma once

#include "cuda/attend/row_tile.cuh"
#include "cuda/ptx/math.cuh"

namespace tilewise::cuda {

struct TileOrigin {
    int32_t row = 0;  // of the tile's rows: the warp's first one
    int32_t key = 0;
};

__device__ __forceinline__ int accumulator_row(int r, int lane) { return r / 2 * 16 + r % 2 * 8 + lane / 4; }

// Scores outside of a row's interval become -inf. `intervals` holds one (begin, end) a row of the block's tile.
template <int kMBlocks, int kNBlocks>
__device__ __forceinline__ void mask_outside(float (&s)[kMBlocks][kNBlocks][4], const Interval* intervals,
                                             TileOrigin origin) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int r = 0; r < 2 * kMBlocks; ++r) {
        const Interval keys = intervals[origin.row + accumulator_row(r, lane)];
        const int32_t begin = keys.begin - origin.key - lane % 4 * 2;
        const uint32_t length = static_cast<uint32_t>(keys.end - keys.begin);
#pragma unroll
        for (int n = 0; n < kNBlocks; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                if (static_cast<uint32_t>(n * 8 + e - begin) >= length)
                    s[r / 2][n][r % 2 * 2 + e] = negative_infinity();
    }
}

__device__ inline float load_float(const void* data, DType dtype, int64_t offset) {
    if (dtype == DType::kF32) return static_cast<const float*>(data)[offset];
    const uint16_t bits = static_cast<const uint16_t*>(data)[offset];
    return dtype == DType::kBF16 ? to_float(BF16{bits}) : to_float(F16{bits});
}

// tanh, relative error below 5e-7 everywhere (of a score of 1e-6 under a softcap of 30 as well). Near 0, where 1 - 2 / (1 + e^2x) cancels, the
// odd polynomial of least relative error on [0, 0.6], 8e-8. No branch: rows of a warp differ.
__device__ __forceinline__ float tanh_of(float x) {
    const float y = x * x;
    float p = fmaf(0.0156126347f, y, -0.0522118080f);
    p = fmaf(p, y, 0.133131167f);
    p = fmaf(p, y, -0.333325975f);
    const float near = fmaf(p * y, x, x);
    const float far = 1.0f - __fdividef(2.0f, 1.0f + ptx::exp2(fabsf(x) * 2.88539008f));
    return fabsf(x) < 0.6f ? near : copysignf(far, x);
}

// Its derivative 1 - tanh^2, without the cancellation of that form where tanh is nearly 1.
__device__ __forceinline__ float tanh_derivative_of(float x) {
    const float r = __fdividef(1.0f, 1.0f + ptx::exp2(fabsf(x) * 2.88539008f));
    return 4.0f * r * (1.0f - r);
}

// A row of a score tile, as the modifiers see it.
struct ScoreRow {
    int32_t query = 0;
    int32_t head = 0;
    ScoreModifier modifier;
    bool exists = false;
};
__device__ inline ScoreRow score_row_of(const AttentionView& view, const RowTile& t, int32_t row) {
    ScoreRow r;
    r.exists = row < t.num_rows;
    r.query = t.query_of(row);
    r.head = t.head_of(row);
    r.modifier = view.modifier_of(t.batch, r.exists ? r.head : t.first_head, t.sequence);
    return r;
}

// Raw product -> score before the positional mask, in natural units.
__device__ inline float modified_score(const AttentionView& view, const RowTile& t, const ScoreRow& row, float product,
                                       int32_t key) {
    float s = product * row.modifier.softmax_scale;
    if (row.modifier.softcap > 0.0f) s = row.modifier.softcap * tanh_of(__fdividef(s, row.modifier.softcap));
    if (row.modifier.alibi_slope != 0.0f) s += alibi_term<float>(row.modifier, row.query, key);
    if (!row.exists || key >= t.sequence.seqlen_k) return s;
    const PairTensor& bias = view.score.bias;
    if (bias.given()) s += load_float(bias.data, bias.dtype, bias.offset(t.batch, row.head, row.query, key));
    if (!view.mask_allows(t.batch, row.head, row.query, key)) s = negative_infinity();
    return s;
}

template <int kMBlocks, int kNBlocks>
__device__ __forceinline__ void modify_scores(float (&s)[kMBlocks][kNBlocks][4], const AttentionView& view,
                                              const RowTile& t, TileOrigin origin) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int r = 0; r < 2 * kMBlocks; ++r) {
        const ScoreRow row = score_row_of(view, t, origin.row + accumulator_row(r, lane));
#pragma unroll
        for (int n = 0; n < kNBlocks; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                float& x = s[r / 2][n][r % 2 * 2 + e];
                x = modified_score(view, t, row, x, origin.key + n * 8 + lane % 4 * 2 + e);
            }
    }
}

// Probabilities that dropout discards become 0. origin.key is a multiple of 32, and so is the tile's width.
template <int kMBlocks, int kNBlocks>
__device__ __forceinline__ void drop_probabilities(float (&p)[kMBlocks][kNBlocks][4], const AttentionView& view,
                                                   const RowTile& t, TileOrigin origin) {
    const Dropout& dropout = view.score.dropout;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int r = 0; r < 2 * kMBlocks; ++r) {
        const int32_t row = origin.row + accumulator_row(r, lane);
        const uint32_t batch_head = static_cast<uint32_t>(t.batch * view.sizes.num_heads_q + t.head_of(row));
        const uint32_t query = static_cast<uint32_t>(t.query_of(row));
#pragma unroll
        for (int n = 0; n < kNBlocks; n += 4) {
            const uint32_t column = static_cast<uint32_t>(origin.key + n * 8 + lane % 4 * 2);
            const PhiloxBlock block = dropout_block(dropout.key, batch_head, query, column);
#pragma unroll
            for (int i = 0; i < 8; ++i)
                if (dropout_bits(block, static_cast<uint32_t>(i)) < dropout.threshold)
                    p[r / 2][n + i / 2][r % 2 * 2 + i % 2] = 0.0f;
        }
    }
}

}  // namespace tilewise::cuda
