// The first pass of a two-pass backward: dK and dV of 64 keys of a kv head. One warpgroup makes P and dV, the other dS and dK; P goes from the one to
// the other through shared memory in the order of its registers.
//
//   values:  issue S_{i+1}, dV_i  | wait S_{i+1}: P_{i+1} | wait dV_i | hand P_{i+1} over
//   keys:    issue dP_{i+1}, dK_i | wait dP_{i+1}, take P_{i+1}: dS_{i+1} | wait dK_i
//
// mbarriers as in bwd.cuh; P: full <- the warps that make it, empty <- those that take it. Named barrier 1: all products are done.
#pragma once

#include "cuda/sm90/bwd_producer.cuh"
#include "cuda/sm90/bwd_score.cuh"
#include "cuda/sm90/bwd_store.cuh"
#include "cuda/sm90/twopass_traits.hpp"

namespace tilewise::cuda::sm90 {

template <class Traits> __device__ __forceinline__ void init_key_barriers(uint32_t base) {
    constexpr uint32_t kWarp = ptx::kArrivalsOfWarp, kReads = Traits::kConsumerWarps * kWarp;
    Ring<Traits::kShape.q_stages>::init(base + Traits::kQBarriers, kWarp, kReads);
    Ring<Traits::kShape.o_stages>::init(base + Traits::kOBarriers, kWarp, kReads);
    Ring<2>::init(base + Traits::kPairBarriers, 4 * kWarp, 4 * kWarp);
    ptx::mbarrier_init(base + Traits::kKBarrier, kWarp);
    ptx::mbarrier_init(base + Traits::kVBarrier, kWarp);
    ptx::mbarrier_init(base + Traits::kLanding, 1);
}

template <class Traits> struct KeyPass : StepStages<Traits> {
    using Stages = StepStages<Traits>;
    using Stages::base, Stages::q, Stages::o, Stages::q_tile, Stages::o_tile, Stages::place_of;
    static constexpr TwoPassShape kShape = Traits::kShape;
    static constexpr int kTileM = Traits::kTileM;
    using Element = typename Traits::Element;
    using Scores = typename WgmmaOf<Element, kTileM>::Type;
    const BulkBackwardParams& params;
    const KeyBlock& block;
    const GroupThread self;  // group 0: both warpgroups have the same keys

    __device__ __forceinline__ Ring<2> pairs(uint32_t i) const { return {base + Traits::kPairBarriers, i}; }
    __device__ __forceinline__ int32_t own_key() const { return self.thread / 32 * 16 + self.thread % 32 / 4; }
    // This thread's words of P, 16 bytes at a time.
    __device__ __forceinline__ uint32_t pair_words(uint32_t i) const {
        return base + Traits::kPairOffset + pairs(i).stage() * Traits::kPairBytes + self.thread * 16;
    }

    // The 64 rows of K or V, times a tile of Q or dO.
    template <int kDepth>
    __device__ __forceinline__ void issue_product(float (&to)[kTileM / 2], uint32_t keys, uint32_t rows) const {
        const uint64_t a = operand(keys), b = operand(rows);
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < kDepth / 16; ++i)
            Scores::template shared<0>(to, a + columns_step(i, Traits::kKeys), b + columns_step(i, kTileM), i > 0);
        ptx::wgmma_commit();
    }
    // sums += (64 keys x rows) times a tile of dO or Q.
    template <int kColumns>
    __device__ __forceinline__ void issue_sum(float (&sums)[kColumns / 2], const uint32_t (&x)[kTileM / 4],
                                              uint32_t tile) const {
        using Wgmma = typename WgmmaOf<Element, kColumns>::Type;
        const uint64_t b = operand(tile, kTileM * kLineBytes);
        ptx::wgmma_fence();
#pragma unroll
        for (int k = 0; k < kTileM / 16; ++k) Wgmma::template registers<1>(sums, &x[4 * k], b + rows_step(k), 1);
        ptx::wgmma_commit();
    }

    // Scores -> P in place, or with modifiers P and what dS needs of it.
    __device__ __forceinline__ void make_probabilities(uint32_t i, float (&s)[kTileM / 2],
                                                       SignedPairs<Traits>& x) const {
        const StepPlace place = place_of(i);
        const float scale = params.base.score_scale;
        if constexpr (Traits::kHasModifiers) {
            modified_probabilities<Traits>(s, x, {params, block, place, own_key(), is_masked(place, 0)}, floats_in(s));
        } else if (is_masked(place, 0)) {
            plain_probabilities<Element, true>(s, scale, place, own_key(), floats_in(s));
        } else {
            plain_probabilities<Element, false>(s, scale, place, 0, floats_in(s));
        }
    }
    __device__ __forceinline__ void hand_over(uint32_t i, const uint32_t (&words)[kTileM / 4]) const {
        pairs(i).wait_empty();
#pragma unroll
        for (int k = 0; k < kTileM / 16; ++k)
            ptx::store_shared_16(pair_words(i) + k * 2048,
                                 {words[4 * k], words[4 * k + 1], words[4 * k + 2], words[4 * k + 3]});
        ptx::mbarrier_arrive_warp(pairs(i).full_barrier());
    }
    __device__ __forceinline__ void hand_over_step(uint32_t i, const uint32_t (&p)[kTileM / 4],
                                                   const SignedPairs<Traits>& x) const {
        if constexpr (Traits::kHasModifiers)
            hand_over(i, x.words);
        else
            hand_over(i, p);
    }

    __device__ __forceinline__ void run_values(uint32_t num_steps) {
        float dv[kShape.head_dim_v / 2], s[kTileM / 2];
        uint32_t p[kTileM / 4];
        SignedPairs<Traits> x;
#pragma unroll
        for (float& sum : dv) sum = 0.0f;
        if (num_steps > 0) {
            ptx::mbarrier_wait(base + Traits::kKBarrier, 0);
            q(0).wait_full();
            issue_product<kShape.head_dim>(s, base, q_tile(0));
            ptx::wgmma_wait<0>();
            ptx::pin(s);
            ptx::pin(dv);
            make_probabilities(0, s, x);
            ptx::mbarrier_arrive_warp(q(0).empty_barrier());
            pack_pairs<Element>(s, p);
            hand_over_step(0, p, x);
#pragma unroll 1
            for (uint32_t i = 0; i + 1 < num_steps; ++i) {
                q(i + 1).wait_full();
                issue_product<kShape.head_dim>(s, base, q_tile(i + 1));
                o(i).wait_full();
                issue_sum<kShape.head_dim_v>(dv, p, o_tile(i));
                ptx::wgmma_wait<1>();
                ptx::pin(s);
                make_probabilities(i + 1, s, x);
                ptx::mbarrier_arrive_warp(q(i + 1).empty_barrier());
                ptx::wgmma_wait<0>();
                ptx::pin(dv);
                ptx::pin(s);
                ptx::mbarrier_arrive_warp(o(i).empty_barrier());
                pack_pairs<Element>(s, p);
                hand_over_step(i + 1, p, x);
            }
            o(num_steps - 1).wait_full();
            issue_sum<kShape.head_dim_v>(dv, p, o_tile(num_steps - 1));
            ptx::wgmma_wait<0>();
            ptx::pin(dv);
        }
        ptx::barrier_sync(kDsBarrier, kConsumerThreads);
        const ScoreView& score = params.base.view.score;
        store_keys<Traits, Traits::kVPanels>(
            params, block, self, dv, kUnlift<Element> * score.dropout.keep_scale,
            {&params.grad_v, &params.base.grad.v, params.base.dims.head_dim_v, base + Traits::kVOffset, kStoreBarrier});
        if (self.thread == 0) ptx::bulk_wait_read();
    }

    // dP_i -> dS_i in place.
    __device__ __forceinline__ void make_grad_scores(uint32_t i, float (&dp)[kTileM / 2]) const {
        uint32_t words[kTileM / 4];
        pairs(i).wait_full();
#pragma unroll
        for (int k = 0; k < kTileM / 16; ++k) {
            const uint4 w = ptx::load_shared_16(pair_words(i) + k * 2048);
            words[4 * k] = w.x, words[4 * k + 1] = w.y, words[4 * k + 2] = w.z, words[4 * k + 3] = w.w;
        }
        ptx::mbarrier_arrive_warp(pairs(i).empty_barrier());
        const StepPlace place = place_of(i);
        if constexpr (Traits::kHasModifiers)
            modified_grad_scores<Traits>(dp, words, {params, block, place, own_key()}, floats_in(dp));
        else if (is_masked(place, 0))
            plain_grad_scores<Element, true>(dp, words, place, floats_in(dp));
        else
            plain_grad_scores<Element, false>(dp, words, place, floats_in(dp));
    }
    __device__ __forceinline__ void run_keys(uint32_t num_steps) {
        float dk[kShape.head_dim / 2], dp[kTileM / 2];
        uint32_t ds[kTileM / 4];
#pragma unroll
        for (float& sum : dk) sum = 0.0f;
        if (num_steps > 0) {
            ptx::mbarrier_wait(base + Traits::kVBarrier, 0);
            o(0).wait_full();
            issue_product<kShape.head_dim_v>(dp, base + Traits::kVOffset, o_tile(0));
            ptx::wgmma_wait<0>();
            ptx::pin(dp);
            ptx::pin(dk);
            make_grad_scores(0, dp);
            ptx::mbarrier_arrive_warp(o(0).empty_barrier());
            pack_pairs<Element>(dp, ds);
#pragma unroll 1
            for (uint32_t i = 0; i + 1 < num_steps; ++i) {
                o(i + 1).wait_full();
                issue_product<kShape.head_dim_v>(dp, base + Traits::kVOffset, o_tile(i + 1));
                q(i).wait_full();
                issue_sum<kShape.head_dim>(dk, ds, q_tile(i));
                ptx::wgmma_wait<1>();
                ptx::pin(dp);
                make_grad_scores(i + 1, dp);
                ptx::mbarrier_arrive_warp(o(i + 1).empty_barrier());
                ptx::wgmma_wait<0>();
                ptx::pin(dk);
                ptx::pin(dp);
                ptx::mbarrier_arrive_warp(q(i).empty_barrier());
                pack_pairs<Element>(dp, ds);
            }
            q(num_steps - 1).wait_full();
            issue_sum<kShape.head_dim>(dk, ds, q_tile(num_steps - 1));
            ptx::wgmma_wait<0>();
            ptx::pin(dk);
        }
        ptx::barrier_sync(kDsBarrier, kConsumerThreads);
        store_keys<Traits, Traits::kKPanels>(
            params, block, self, dk, params.base.view.score.softmax_scale,
            {&params.grad_k, &params.base.grad.k, params.base.dims.head_dim, base, kStoreBarrier + 1});
        if (self.thread == 0) ptx::bulk_wait_read();
    }
};

template <class Traits> __device__ __forceinline__ void backward_keys(const BulkBackwardParams& params) {
    extern __shared__ __align__(1024) unsigned char shared[];
    KeyBlock& block = *reinterpret_cast<KeyBlock*>(shared + Traits::kBlockOffset);
    const uint32_t base = ptx::shared_address(shared);
    if (!enter_key_block<Traits>(params, shared, block, [=] { init_key_barriers<Traits>(base); })) return;
    const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
    if (warpgroup == 0) {
        ptx::lower_registers<Traits::kProducerRegisters>();
        const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
        BackwardProducer<Traits> producer = {params, block, base, {base + Traits::kLanding}};
        if (warp == 0) producer.run_loads();
    } else {
        ptx::raise_registers<Traits::kConsumerRegisters>();
        KeyPass<Traits> pass = {{base}, params, block, {0, static_cast<int>(threadIdx.x) % 128}};
        const uint32_t num_steps = static_cast<uint32_t>(block.num_steps());
        if (warpgroup == 1)
            pass.run_values(num_steps);
        else
            pass.run_keys(num_steps);
    }
}

}  // namespace tilewise::cuda::sm90
