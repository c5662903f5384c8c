// A consumer warpgroup of the backward: 64 keys. A step's products, with S^T, P^T and dS^T as (64 keys x rows of the step):
//
//   S^T = K Q^T;   dP^T = V dO^T;   dV += P^T dO;   dK += dS^T Q;   dQ^T = K^T dS^T over all keys of the block
//
// P and dS are A operands in registers; dS goes through shared memory as well, for dQ^T (and for dK, where registers are short). dQ^T uses the
// registers of dP^T, of which nothing is left by then. What is issued, and what runs under what ("wait X: Y" runs Y while what was issued after X
// is under way):
//
//   issue dP_i, S_{i+1} | wait dP_i: dS_i, barrier | issue dQ_i, dK_i | wait S_{i+1}: P_{i+1} | issue dV_{i+1} | wait dQ_i: hand it over
//
// A step's scalars live in shared memory and not in registers, which are short.
#pragma once

#include "cuda/sm90/bwd_score.cuh"
#include "cuda/sm90/bwd_store.cuh"

namespace tilewise::cuda::sm90 {

template <class Traits> struct BackwardConsumer : StepStages<Traits> {
    using Stages = StepStages<Traits>;
    using Stages::base, Stages::q, Stages::o, Stages::q_tile, Stages::o_tile, Stages::place_of;
    static constexpr BackwardShape kShape = Traits::kShape;
    static constexpr int kTileM = Traits::kTileM;
    using Element = typename Traits::Element;
    using Scores = typename WgmmaOf<Element, kTileM>::Type;
    using B = BackwardBarriers<Traits>;
    const BulkBackwardParams& params;
    const KeyBlock& block;
    const GroupThread self;

    float dk[kShape.head_dim / 2], dv[kShape.head_dim_v / 2];
    float s[kTileM / 2];
    float dp[kTileM / 2];     // then dQ^T
    uint32_t p[kTileM / 4];   // P^T, dropped pairs 0
    uint32_t ds[kTileM / 4];  // dS^T
    SignedPairs<Traits> x;    // of the step, from P to dS

    __device__ __forceinline__ typename B::DqRing dq(uint32_t i) const { return {base + Traits::kDqBarriers, i}; }
    __device__ __forceinline__ uint32_t ds_tile(uint32_t i) const {
        return base + Traits::kDsOffset + i % 2 * Traits::kDsBytes;
    }
    __device__ __forceinline__ uint32_t own_ds(uint32_t i) const {
        return ds_tile(i) + self.group * kTileM * kLineBytes;
    }
    // This warpgroup's 64 rows of K or V, times a tile of Q or dO.
    template <int kDepth>
    __device__ __forceinline__ void issue_product(float (&to)[kTileM / 2], uint32_t keys, uint32_t rows) {
        const uint64_t a = operand(keys + self.group * kGroupRows * kLineBytes), b = operand(rows);
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < kDepth / 16; ++i)
            Scores::template shared<0>(to, a + columns_step(i, kBackwardKeys), b + columns_step(i, kTileM), i > 0);
        ptx::wgmma_commit();
    }
    __device__ __forceinline__ void issue_scores(uint32_t i) {
        q(i).wait_full();
        issue_product<kShape.head_dim>(s, base, q_tile(i));
    }
    __device__ __forceinline__ void issue_grad_probabilities(uint32_t i) {
        issue_product<kShape.head_dim_v>(dp, base + Traits::kVOffset, o_tile(i));
    }
    __device__ __forceinline__ void issue_grad_values(uint32_t i) {
        o(i).wait_full();
        using Wgmma = typename WgmmaOf<Element, kShape.head_dim_v>::Type;
        const uint64_t b = operand(o_tile(i), kTileM * kLineBytes);
        ptx::wgmma_fence();
#pragma unroll
        for (int k = 0; k < kTileM / 16; ++k) Wgmma::template registers<1>(dv, &p[4 * k], b + rows_step(k), 1);
        ptx::wgmma_commit();
    }
    __device__ __forceinline__ void issue_grad_keys(uint32_t i) {
        using Wgmma = typename WgmmaOf<Element, kShape.head_dim>::Type;
        const uint64_t b = operand(q_tile(i), kTileM * kLineBytes);
        [[maybe_unused]] const uint64_t a = operand(own_ds(i));
        ptx::wgmma_fence();
#pragma unroll
        for (int k = 0; k < kTileM / 16; ++k) {
            if constexpr (kShape.dk_shared != 0)
                Wgmma::template shared<1, 1>(dk, a + rows_step(k), b + rows_step(k), 1);
            else
                Wgmma::template registers<1>(dk, &ds[4 * k], b + rows_step(k), 1);
        }
        ptx::wgmma_commit();
    }
    __device__ __forceinline__ bool makes_dq(uint32_t i) const {
        return !Traits::kTurns || i % kBackwardGroups == static_cast<uint32_t>(self.group);
    }
    // 64 columns of d.
    __device__ __forceinline__ void issue_grad_queries(uint32_t i) {
        const uint32_t panel = Traits::kTurns ? 0 : self.group;
        const uint64_t a = operand(base + panel * kBackwardKeys * kLineBytes), b = operand(ds_tile(i));
        ptx::wgmma_fence();
#pragma unroll
        for (int k = 0; k < kBackwardKeys / 16; ++k)
            Scores::template shared<0, 1>(dp, a + rows_step(k), b + columns_step(k, kTileM), k > 0);
        ptx::wgmma_commit();
    }

    __device__ __forceinline__ int32_t own_key() const { return self.group * kGroupRows + own_row(); }
    // S_i is there.
    __device__ __forceinline__ void make_probabilities(uint32_t i) {
        ptx::pin(s);
        const StepPlace place = place_of(i);
        const bool masks = is_masked(place, self.group);
        const float scale = params.base.score_scale;
        if constexpr (Traits::kHasModifiers) {
            modified_probabilities<Traits>(s, x, {params, block, place, own_key(), masks}, packed_in<Element>(p));
        } else if (masks) {
            plain_probabilities<Element, true>(s, scale, place, own_key(), packed_in<Element>(p));
        } else {
            plain_probabilities<Element, false>(s, scale, place, 0, packed_in<Element>(p));
        }
        ptx::pin(p);
    }
    // dP_i is there, and with it dK_{i-1} and dV_i.
    __device__ __forceinline__ void make_grad_scores(uint32_t i) {
        ptx::pin(dp);
        if (i > 0) ptx::mbarrier_arrive_warp(q(i - 1).empty_barrier());
        const StepPlace place = place_of(i);
        if constexpr (Traits::kHasModifiers) {
            modified_grad_scores<Traits>(dp, x.words, {params, block, place, own_key()}, packed_in<Element>(ds));
        } else {
            if (is_masked(place, self.group))
                plain_grad_scores<Element, true>(dp, p, place, packed_in<Element>(ds));
            else
                plain_grad_scores<Element, false>(dp, p, place, packed_in<Element>(ds));
        }
        if constexpr (kShape.dk_shared == 0) ptx::pin(ds);
        ptx::mbarrier_arrive_warp(o(i).empty_barrier());
        store_grad_scores<Traits>(ds, own_ds(i));
        ptx::barrier_sync(kDsBarrier, kConsumerThreads);
        if (makes_dq(i)) {
            issue_grad_queries(i);
            issue_grad_keys(i);
        } else {
            ptx::wgmma_commit();  // the same number of groups
            issue_grad_keys(i);
        }
    }
    // dQ_i is there.
    __device__ __forceinline__ void hand_over(uint32_t i) {
        ptx::pin(dp);
        if (!makes_dq(i)) return;
        // With turns a stage is filled by one warpgroup, the other one's steps between.
        dq(i).wait_empty();
        const uint32_t part = Traits::kTurns ? 0 : self.group;
        const uint32_t to = base + Traits::kDqOffset + dq(i).stage() * Traits::kDqBytes +
                            part * kTileM * kPanelColumns * 4 + own_thread() * 16;
#pragma unroll
        for (int g = 0; g < kTileM / 8; ++g)
            ptx::store_shared_16(to + g * 2048, {__float_as_uint(dp[4 * g]), __float_as_uint(dp[4 * g + 1]),
                                                 __float_as_uint(dp[4 * g + 2]), __float_as_uint(dp[4 * g + 3])});
        ptx::fence_async_proxy();
        ptx::mbarrier_arrive_warp(dq(i).full_barrier());
    }

    __device__ __forceinline__ void run() {
        const uint32_t num_steps = static_cast<uint32_t>(block.num_steps());
#pragma unroll
        for (float& sum : dk) sum = 0.0f;
#pragma unroll
        for (float& sum : dv) sum = 0.0f;
        if (num_steps > 0) {
            ptx::mbarrier_wait(base + Traits::kKBarrier, 0);
            issue_scores(0);
            ptx::mbarrier_wait(base + Traits::kVBarrier, 0);
            ptx::wgmma_wait<0>();
            ptx::pin(dk);  // zeros must not move below the products that are under way from here on
            ptx::pin(dv);
            make_probabilities(0);
            issue_grad_values(0);
#pragma unroll 1
            for (uint32_t i = 0; i + 1 < num_steps; ++i) {
                issue_grad_probabilities(i);
                issue_scores(i + 1);
                ptx::wgmma_wait<1>();
                make_grad_scores(i);
                ptx::wgmma_wait<2>();
                make_probabilities(i + 1);
                issue_grad_values(i + 1);
                ptx::wgmma_wait<2>();
                hand_over(i);
            }
            issue_grad_probabilities(num_steps - 1);
            ptx::wgmma_wait<0>();
            make_grad_scores(num_steps - 1);
            ptx::wgmma_wait<1>();
            hand_over(num_steps - 1);
            ptx::wgmma_wait<0>();
        }
        ptx::pin(dk);
        ptx::pin(dv);
        const ScoreView& score = params.base.view.score;
        constexpr float kUnlifted = kUnlift<Element>;
        const int barrier = kStoreBarrier + self.group;
        ptx::barrier_sync(barrier, 128);
        store_keys<Traits, Traits::kVPanels>(
            params, block, self, dv, kUnlifted * score.dropout.keep_scale,
            {&params.grad_v, &params.base.grad.v, params.base.dims.head_dim_v, base + Traits::kVOffset, barrier});
        ptx::barrier_sync(kDsBarrier, kConsumerThreads);  // products of all warpgroups read K
        store_keys<Traits, Traits::kKPanels>(
            params, block, self, dk, score.softmax_scale,
            {&params.grad_k, &params.base.grad.k, params.base.dims.head_dim, base, barrier});
        if (self.thread == 0) ptx::bulk_wait_read();
    }

private:
    // The thread's number, read anew where it is needed.
    __device__ __forceinline__ static int own_thread() { return static_cast<int>(ptx::thread_index() % 128); }
    __device__ __forceinline__ static int own_row() { return own_thread() / 32 * 16 + own_thread() % 32 / 4; }
};

}  // namespace tilewise::cuda::sm90
