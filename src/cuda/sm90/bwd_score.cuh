// From scores to probabilities and from their gradients to those of scores, in wgmma's accumulators: element 4 j + 2 r + e of a thread is key
// own_key + 8 r of the block and row 8 j + 2 (lane % 4) + e of the step. P is lifted (softmax_tile.cuh).
#pragma once

#include "cuda/attend/elements.cuh"
#include "cuda/attend/modified_pair.cuh"
#include "cuda/ptx/bulk.cuh"
#include "cuda/ptx/pairs.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/sm90/bwd_block.cuh"
#include "cuda/sm90/bwd_tile.cuh"
#include "cuda/tile/element.cuh"

namespace tilewise::cuda::sm90 {

// Addresses of what the producer says of a step.
struct StepPlace {
    uint32_t step, seen, lse, delta;
};
// Where the tiles and numbers of a step lie, by the number of the step.
template <class Traits> struct StepStages {
    const uint32_t base;

    __device__ __forceinline__ Ring<Traits::kShape.q_stages> q(uint32_t i) const {
        return {base + Traits::kQBarriers, i};
    }
    __device__ __forceinline__ Ring<Traits::kShape.o_stages> o(uint32_t i) const {
        return {base + Traits::kOBarriers, i};
    }
    __device__ __forceinline__ uint32_t q_tile(uint32_t i) const {
        return base + Traits::kQOffset + q(i).stage() * Traits::kQBytes;
    }
    __device__ __forceinline__ uint32_t o_tile(uint32_t i) const {
        return base + Traits::kOOffset + o(i).stage() * Traits::kOBytes;
    }
    __device__ __forceinline__ StepPlace place_of(uint32_t i) const {
        const uint32_t stage = q(i).stage();
        return {base + Traits::kStepOffset + stage * 16, base + Traits::kSeenOffset + stage * Traits::kSeenBytes,
                base + Traits::kLseOffset + stage * Traits::kStatBytes,
                base + Traits::kDeltaOffset + o(i).stage() * Traits::kStatBytes};
    }
};

// What modifiers ask about a pair, beside its element's place.
struct PairContext {
    const BulkBackwardParams& params;
    const KeyBlock& block;
    StepPlace place;
    int32_t own_key = 0;     // of the block
    bool is_masked = false;  // some pair of the warpgroup's step is not visible
    __device__ __forceinline__ int32_t head() const { return static_cast<int32_t>(ptx::load_shared_4(place.step + 4)); }
    __device__ __forceinline__ int32_t first_row(int tile_m) const;  // of this thread's elements
};
__device__ __forceinline__ int pair_column() { return static_cast<int>(threadIdx.x) % 4 * 2; }
__device__ __forceinline__ int32_t PairContext::first_row(int tile_m) const {
    return static_cast<int32_t>(ptx::load_shared_4(place.step)) * tile_m + pair_column();
}
__device__ __forceinline__ bool is_masked(const StepPlace& place, int group) {
    return (ptx::load_shared_4(place.step + 8) >> group & 1u) != 0;
}

// One word: what two rows see of the block's keys, each as begin and length, a byte each.
struct SeenPair {
    uint32_t word;
    __device__ __forceinline__ bool has(int e, uint32_t key) const {
        const uint32_t begin = word >> (16 * e) & 0xffu, length = word >> (16 * e + 8) & 0xffu;
        return key - begin < length;
    }
};
__device__ __forceinline__ SeenPair seen_pair(const StepPlace& place, int j) {
    return {ptx::load_shared_4(place.seen + 2 * (8 * j + pair_column()))};
}

// Where a function below leaves its numbers: of elements 4 j + 2 r and 4 j + 2 r + 1. Packed they are an A operand.
template <class Element, int kCount> __device__ __forceinline__ auto packed_in(uint32_t (&words)[kCount]) {
    return [&words](int j, int r, float x, float y) { words[2 * j + r] = tile::Products<Element>::pack(x, y); };
}
template <int kCount> __device__ __forceinline__ auto floats_in(float (&to)[kCount]) {
    return [&to](int j, int r, float x, float y) {
        to[4 * j + 2 * r] = x;
        to[4 * j + 2 * r + 1] = y;
    };
}

template <class Element, int kCount>
__device__ __forceinline__ void pack_pairs(const float (&x)[kCount], uint32_t (&words)[kCount / 2]) {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) words[i] = tile::Products<Element>::pack(x[2 * i], x[2 * i + 1]);
}

// Raw scores -> P. lse is +inf for rows that see nothing. kMasked: P of what a row does not see is 0, whatever its lse is.
template <class Element, bool kMasked, int kCount, class Store>
__device__ __forceinline__ void plain_probabilities(const float (&s)[kCount], float scale, const StepPlace& place,
                                                    int32_t own_key, Store store) {
    const uint32_t lse = place.lse + pair_column() * 4;
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
        [[maybe_unused]] SeenPair seen = {};
        if constexpr (kMasked) seen = seen_pair(place, j);
        const float2 shift = ptx::load_shared_floats(lse + 32 * j);
        const float x = kLift<Element> - shift.x, y = kLift<Element> - shift.y;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float a = ptx::exp2(fmaf(s[4 * j + 2 * r], scale, x)), b = ptx::exp2(fmaf(s[4 * j + 2 * r + 1], scale, y));
            if (kMasked && !seen.has(0, own_key + 8 * r)) a = 0.0f;
            if (kMasked && !seen.has(1, own_key + 8 * r)) b = 0.0f;
            store(j, r, a, b);
        }
    }
}

// dP -> dS = P (dP - delta), without the scale of the scores. kMasked: dP of a pair without a probability may be anything.
template <class Element, bool kMasked, int kCount, class Store>
__device__ __forceinline__ void plain_grad_scores(const float (&dp)[kCount], const uint32_t (&p)[kCount / 2],
                                                  const StepPlace& place, Store store) {
    const uint32_t delta = place.delta + pair_column() * 4;
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
        const float2 minus = ptx::load_shared_floats(delta + 32 * j);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float2 weight = unpack<Element>(p[2 * j + r]);
            float x = weight.x * kUnlift<Element> * (dp[4 * j + 2 * r] - minus.x);
            float y = weight.y * kUnlift<Element> * (dp[4 * j + 2 * r + 1] - minus.y);
            if (kMasked && weight.x == 0.0f) x = 0.0f;
            if (kMasked && weight.y == 0.0f) y = 0.0f;
            store(j, r, x, y);
        }
    }
}

// With modifiers, what dS needs of P: c P with c the derivative of softcap, negative where dropout drops the pair.
template <class Traits, bool kHasModifiers = Traits::kHasModifiers> struct SignedPairs {};
template <class Traits> struct SignedPairs<Traits, true> { uint32_t words[Traits::kTileM / 4]; };

template <class Traits, int kCount, class Store>
__device__ inline void modified_probabilities(const float (&s)[kCount], SignedPairs<Traits>& x, const PairContext& at,
                                              Store store) {
    using Element = typename Traits::Element;
    const AttentionView& view = at.params.base.view;
    const KeyBlock& block = at.block;
    const Dropout& dropout = view.score.dropout;
    const int32_t head = at.head(), first_row = at.first_row(Traits::kTileM);
    const ScoreModifier modifier = view.modifier_of(block.batch, head, block.sequence);
    const uint32_t batch_head = static_cast<uint32_t>(block.batch * view.sizes.num_heads_q + head);
    const int32_t first_key = block.first_key + at.own_key;
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
        const float2 shift = ptx::load_shared_floats(at.place.lse + 4 * (8 * j + pair_column()));
        SeenPair seen = {};
        if (at.is_masked) seen = seen_pair(at.place, j);
        float kept[2][2], signed_pair[2][2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int32_t query = first_row + 8 * j + e;
            PhiloxBlock random{};
            if (dropout.threshold > 0)
                random = dropout_block(dropout.key, batch_head, static_cast<uint32_t>(query),
                                       static_cast<uint32_t>(first_key));
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const float product = s[4 * j + 2 * r + e];
                const int32_t key = first_key + 8 * r;
                ModifiedPair pair;
                if (at.is_masked ? seen.has(e, at.own_key + 8 * r) : query < block.sequence.seqlen_q)
                    pair = modified_pair<Element>(view, modifier, block.batch, {query, key, head},
                                                  {product, e == 0 ? shift.x : shift.y});
                const bool is_kept =
                    dropout_bits(random, dropout_slot(static_cast<uint32_t>(key))) >= dropout.threshold;
                kept[r][e] = is_kept ? pair.p : 0.0f;
                signed_pair[r][e] = (is_kept ? pair.p : -pair.p) * pair.derivative;
            }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            store(j, r, kept[r][0], kept[r][1]);
            x.words[2 * j + r] = tile::Products<Element>::pack(signed_pair[r][0], signed_pair[r][1]);
        }
    }
}

// dP -> dS = c P (D dP - delta), with D the factor of dropout; and the gradient of a bias, each pair by the one block that has its key.
template <class Traits, int kCount, class Store>
__device__ inline void modified_grad_scores(const float (&dp)[kCount], const uint32_t (&x)[kCount / 2],
                                            const PairContext& at, Store store) {
    using Element = typename Traits::Element;
    const float keep_scale = at.params.base.view.score.dropout.keep_scale;
    const PairTensor& grad_bias = at.params.base.grad.bias;
    const auto grad = [keep_scale](float pair, float dp_of_pair, float delta) {
        const float inner = signbit(pair) ? -delta : fmaf(keep_scale, dp_of_pair, -delta);
        return pair == 0.0f ? 0.0f : kUnlift<Element> * fabsf(pair) * inner;
    };
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
        const float2 delta = ptx::load_shared_floats(at.place.delta + 4 * (8 * j + pair_column()));
        float of_pair[2][2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float2 pair = unpack<Element>(x[2 * j + r]);
            of_pair[r][0] = grad(pair.x, dp[4 * j + 2 * r], delta.x);
            of_pair[r][1] = grad(pair.y, dp[4 * j + 2 * r + 1], delta.y);
            store(j, r, of_pair[r][0], of_pair[r][1]);
        }
        if (grad_bias.given()) {
            const int32_t head = at.head(), first_row = at.first_row(Traits::kTileM) + 8 * j;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int32_t query = first_row + i % 2, key = at.block.first_key + at.own_key + i / 2 * 8;
                if (query < at.block.sequence.seqlen_q && key < at.block.sequence.seqlen_k)
                    store_real(grad_bias.data, grad_bias.dtype, grad_bias.offset(at.block.batch, head, query, key),
                               of_pair[i / 2][i % 2]);
            }
        }
    }
}

// dS^T of a warpgroup -> [row][its 64 keys].
template <class Traits, int kCount>
__device__ __forceinline__ void store_grad_scores(const uint32_t (&ds)[kCount], uint32_t to) {
    const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    const int row = lane % 8 + lane / 16 * 8, chunk = thread / 32 * 2 + lane / 8 % 2;
    const uint32_t first = to + line_chunk(row, chunk);
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i)
        ptx::stmatrix_x4_trans(first + i * 16 * kLineBytes, ds[4 * i], ds[4 * i + 1], ds[4 * i + 2], ds[4 * i + 3]);
    ptx::fence_async_proxy();
}

}  // namespace tilewise::cuda::sm90
