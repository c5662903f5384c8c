// Scores of the backward with modifiers, and dS. Where S is computed, a pair has P, whether dropout keeps it, and c, the derivative of
// softcap; where dS is, all three arrive as one 16-bit number: c P, negative where dropout drops the pair. P is lifted (softmax_tile.cuh).
#pragma once

#include "cuda/sm80/bwd_tile.cuh"

namespace tilewise::cuda::sm80 {

// Raw scores -> P with dropped pairs 0, in place; signed pairs go to store(m, n, half, x0, x1). `lse`: address of the lane's first pair.
template <class Element, int kBlocks, class Store>
__device__ inline void modify_probabilities(float (&s)[2][kBlocks][4], const BackwardParams& params,
                                            const BackwardBlock& block, PairOrigin origin, uint32_t lse, Store store) {
    const AttentionView& view = params.view;
    const Dropout& dropout = view.score.dropout;
    const ScoreModifier modifier = view.modifier_of(block.batch, origin.head, block.sequence);
    const QueryIntervals<kBlocks * 8> intervals(view, block, origin.query);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t batch_head = static_cast<uint32_t>(block.batch * view.sizes.num_heads_q + origin.head);
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
        const float2 shift = ptx::load_shared_floats(lse + n * 32);
        float x[4][2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const Interval keys = intervals.of(n, lane % 4 * 2 + e);
            const int32_t query = origin.query + n * 8 + lane % 4 * 2 + e, first_key = origin.key + lane / 4;
            PhiloxBlock random{};
            if (dropout.threshold > 0)
                random = dropout_block(dropout.key, batch_head, static_cast<uint32_t>(query),
                                       static_cast<uint32_t>(first_key));
#pragma unroll
            for (int i = 0; i < 4; ++i) {  // keys 8 i apart: one block of decisions serves them all
                float& p = s[i / 2][n][i % 2 * 2 + e];
                const int32_t key = first_key + i * 8;
                ModifiedPair pair;
                if (key >= keys.begin && key < keys.end)
                    pair = modified_pair<Element>(view, modifier, block.batch, {query, key, origin.head},
                                                  {p, e == 0 ? shift.x : shift.y});
                const uint32_t decision = random.word[i] >> (16 * (lane / 4 % 2)) & 0xffffu;
                const bool kept = decision >= dropout.threshold;
                p = kept ? pair.p : 0.0f;
                x[i][e] = (kept ? pair.p : -pair.p) * pair.derivative;
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) store(i / 2, n, i % 2, x[i][0], x[i][1]);
    }
}

// dP of hidden pairs, which may be anything, becomes 0. `x`: address of the first fragment of P.
template <class Traits, int kBlocks> __device__ inline void discard_hidden(float (&dp)[2][kBlocks][4], uint32_t x) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
        uint32_t p[4];
        load_fragment(p, x + i * 512);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            if ((p[r] & 0xffffu) == 0) dp[i % 2][i / 2 * 2 + r / 2][r % 2 * 2] = 0.0f;
            if (p[r] >> 16 == 0) dp[i % 2][i / 2 * 2 + r / 2][r % 2 * 2 + 1] = 0.0f;
        }
    }
}

// One k16 step of dS^T: signed pairs x (two A fragments) and dP - delta -> dS, in place and packed. `delta`: address of the step's first
// pair, read with modifiers only.
template <class Traits, int kBlocks>
__device__ __forceinline__ void make_grad_scores(uint32_t (&ds)[2][4], float (&dp)[2][kBlocks][4], int step,
                                                 const uint32_t (&x)[2][4], uint32_t delta, float keep_scale) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int m = i / 4, n = 2 * step + i / 2 % 2, e = i % 2 * 2;
        const float2 p = unpack<typename Traits::Element>(x[m][i % 4]);
        float &d0 = dp[m][n][e], &d1 = dp[m][n][e + 1];
        if constexpr (Traits::kHasModifiers) {
            const float2 minus = ptx::load_shared_floats(delta + n * 32);
            constexpr float kUnlifted = kUnlift<typename Traits::Element>;
            const auto grad = [keep_scale](float p_signed, float dp_minus, float delta_of_row) {
                const float inner =
                    signbit(p_signed) ? -delta_of_row : fmaf(keep_scale, dp_minus, (keep_scale - 1.0f) * delta_of_row);
                return p_signed == 0.0f ? 0.0f : kUnlifted * fabsf(p_signed) * inner;
            };
            d0 = grad(p.x, d0, minus.x);
            d1 = grad(p.y, d1, minus.y);
        } else {
            d0 *= p.x;
            d1 *= p.y;
        }
        ds[m][i % 4] = tile::Products<typename Traits::Element>::pack(d0, d1);
    }
}

// dS -> grad_bias, each pair by the one block that has its key and this head. Only where no axis of the bias is broadcast and there is no
// softcap, whose derivative dS already contains.
template <int kBlocks>
__device__ inline void store_grad_bias(const float (&ds)[2][kBlocks][4], const PairTensor& to,
                                       const BackwardBlock& block, PairOrigin origin) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int n = 0; n < kBlocks; ++n)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int32_t query = origin.query + n * 8 + lane % 4 * 2 + i % 2, key = origin.key + i / 2 * 8 + lane / 4;
            if (query < block.sequence.seqlen_q && key < block.sequence.seqlen_k)
                store_real(to.data, to.dtype, to.offset(block.batch, origin.head, query, key),
                           ds[i / 4][n][i / 2 % 2 * 2 + i % 2]);
        }
}

}  // namespace tilewise::cuda::sm80
