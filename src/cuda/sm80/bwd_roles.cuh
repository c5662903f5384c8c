// The main loop of the backward where warps have roles. Half of the warps make S, P and dV of 32 keys each, the other half dP, dS and dK; P
// travels from the first to the second as 16-bit fragments. So one warp holds the sums of one gradient only, 32 keys high, and every
// B fragment from shared memory feeds two products, which is what bounds mma.sync on these GPUs. The two roles are in different phases
// most of the time: one's exponentials and loads run under the other's products. Barriers in shared memory keep them apart:
//
//   Q, dO: full when copied, empty when all warps have used them        P: one a group of 32 keys
//   dS: full when all warps of its role have stored, empty when dQ (and with parts, dK) is computed
#pragma once

#include "cuda/sm80/bwd_dq.cuh"
#include "cuda/sm80/bwd_score.cuh"
#include "cuda/sm80/bwd_store.cuh"

namespace tilewise::cuda::sm80 {

template <class Traits> struct BackwardState {
    static constexpr BackwardShape kShape = Traits::kShape;
    using Tiles = BackwardTiles<Traits>;
    using Stage = RingPlace<kShape.num_stages>;
    const BackwardParams& params;
    const BackwardBlock& block;
    BackwardWarp<Traits> warp;

    __device__ __forceinline__ RingBarriers<kShape.num_stages> q() const { return {warp.base + Traits::kQBarriers}; }
    __device__ __forceinline__ RingBarriers<kShape.num_stages> o() const { return {warp.base + Traits::kOBarriers}; }
    __device__ __forceinline__ RingBarriers<kShape.num_slots> ds() const { return {warp.base + Traits::kDsBarriers}; }
    __device__ __forceinline__ RingBarriers<1> p() const {
        return {warp.base + Traits::kPBarriers + warp.group() * 16};
    }

    // Into a stage that is free.
    __device__ __forceinline__ void fill_q(BackwardStep step, int stage) const {
        const int thread = warp.again().thread % Traits::kRoleThreads;
        fill_values<Traits>(values_of(params.scratch.lse_log2), params.scratch.head_rows, step, block.sequence.seqlen_q,
                            warp.base + Traits::kLseOffset + stage * kShape.tile_m * 4, thread);
        const RowFill<Traits, typename Tiles::Q> fill = {
            block.q, params.view.q, warp.base + Traits::kQOffset + stage * Traits::kQBytes, thread};
        run_fill(fill, step, params.dims.vector_q && params.dims.head_dim == kShape.head_dim, q().full(stage));
    }
    __device__ __forceinline__ void fill_o(BackwardStep step, int stage) const {
        const int thread = warp.again().thread % Traits::kRoleThreads;
        fill_values<Traits>(values_of(params.scratch.delta), params.scratch.head_rows, step, block.sequence.seqlen_q,
                            warp.base + Traits::kDeltaOffset + stage * kShape.tile_m * 4, thread);
        const RowFill<Traits, typename Tiles::O> fill = {
            block.o, params.grad.o, warp.base + Traits::kOOffset + stage * Traits::kOBytes, thread};
        run_fill(fill, step, params.dims.vector_o && params.dims.head_dim_v == kShape.head_dim_v, o().full(stage));
    }

    __device__ __forceinline__ int num_steps() const {
        return (block.rows.end - block.rows.begin) / kShape.tile_m * block.num_heads;
    }
    __device__ __forceinline__ BackwardStep first_step() const {
        return {block.rows.end - kShape.tile_m, block.first_head};
    }
    __device__ __forceinline__ BackwardStep after(BackwardStep step) const {
        return step_after<kShape.tile_m>(step, block.rows);
    }
    __device__ __forceinline__ bool masked(BackwardStep step) const {
        const uint2 rows = ptx::load_shared_8(warp.base + Traits::kInteriorOffset + warp.group() * 8);
        return step.row < static_cast<int32_t>(rows.x) || step.row + kShape.tile_m > static_cast<int32_t>(rows.y);
    }
    // Of the warp's first query and key, `query` queries on.
    __device__ __forceinline__ PairOrigin origin(BackwardStep step, int query) const {
        const BackwardWarp<Traits> w = warp.again();
        return {step.row + w.part() * Traits::kQueries + query, block.first_key + w.group() * 32, step.head};
    }
    __device__ GradTarget target_k() const {
        const HeadDims& dims = params.dims;
        return {&params.grad.k,
                params.scratch.dk,
                dims.head_dim,
                warp.part() * Traits::kColumns,
                params.view.score.softmax_scale,
                1.0f,
                dims.vector_k};
    }
    __device__ GradTarget target_v() const {
        const HeadDims& dims = params.dims;
        const float lift = Traits::kHasModifiers ? kUnlift<typename Traits::Element> : 1.0f;
        const float keep = params.view.score.dropout.keep_scale * lift;
        return {&params.grad.v, params.scratch.dv, dims.head_dim_v, warp.part() * Traits::kColumnsV, keep,
                keep,           dims.vector_v};
    }
    // After a warp's last step: until nobody reads tiles any more.
    __device__ void wait_for_all() const {
        ptx::mbarrier_arrive_warp(warp.base + Traits::kEndBarrier);
        ptx::mbarrier_wait(warp.base + Traits::kEndBarrier, 0);
    }
    // The warp's own rows for dK or dV, after that.
    __device__ uint32_t staged(int columns) const {
        return warp.base + warp.thread / 32 * (32 * bytes_of_row(columns));
    }

private:
    __device__ __forceinline__ const float* values_of(const float* column) const {
        const Sequence& s = block.sequence;
        return column + params.scratch.value_index(params.view.sizes, s.q_batch, 0, s.q_row);
    }
    // `simple`: 16-byte copies, and as many columns as the tile has.
    template <class Fill>
    __device__ __forceinline__ void run_fill(const Fill& fill, BackwardStep step, bool simple, uint32_t full) const {
        if (simple && step.row + kShape.tile_m <= block.sequence.seqlen_q) {
            fill.whole(step);
        } else {
            fill.any(step);
            if (!fill.source.vector) {  // some of it was copied by plain stores
                ptx::cp_async_commit();
                ptx::cp_async_wait<0>();
                ptx::mbarrier_arrive(full);
                return;
            }
        }
        ptx::mbarrier_arrive_after_copies(full);
    }
};

// Whether a role computes dQ of step `i`: the second role has the even ones.
template <class Traits> __device__ __forceinline__ bool has_turn(int i, int role) {
    return Traits::kShape.dq_turns == 1 || i % 2 != role;
}

// With an order: ends the turn of the step before `step`, which is number `i`, if this role had one.
template <class Traits>
__device__ __forceinline__ void end_turn_before(const BackwardState<Traits>& b, BackwardStep step, int i, int role) {
    if (b.params.scratch.order != nullptr && i > 0 && has_turn<Traits>(i - 1, role))
        GradQ<Traits>::end_turn(b.params, b.block, step_before<Traits::kShape.tile_m>(step, b.block.rows));
}

// S, P -> P to the other role; dV.
template <class Traits> __device__ __forceinline__ void make_values(const BackwardState<Traits>& b) {
    using Element = typename Traits::Element;
    using Tiles = BackwardTiles<Traits>;
    constexpr BackwardShape kShape = Traits::kShape;
    constexpr int kSteps = kShape.head_dim / 16, kBlocks = Traits::kQueries / 8;
    constexpr bool kHoldsKeys = kSteps <= 4;
    const BackwardWarp<Traits>& warp = b.warp;
    const uint32_t k = warp.k_lane();
    uint32_t keys[kHoldsKeys ? kSteps : 1][2][4];
    if constexpr (kHoldsKeys)
        for (int step = 0; step < kSteps; ++step) rows_a<typename Tiles::K>(k)(keys[step], step);
    float dv[2][Traits::kColumnsV / 8][4];
    clear(dv);

    const int num_steps = b.num_steps();
    BackwardStep step = b.first_step();
#pragma unroll 1
    for (int i = 0; i < num_steps; ++i) {
        const BackwardStep next = b.after(step);
        const RingPlace<kShape.num_stages> at(i), ahead(i + 1);
        const RingPlace<kShape.num_slots> ds_at(i);
        const RingPlace<1> p_at(i);
        float s[2][kBlocks][4];
        clear(s);
        b.q().wait_full(at);
        const auto queries = warp.q_lane(at.slot * Traits::kQBytes);
        if constexpr (kHoldsKeys)
            multiply<Element, kSteps>(s, held_a(keys), queries);
        else
            multiply<Element, kSteps>(s, rows_a<typename Tiles::K>(k), queries);
        end_turn_before(b, step, i, 0);
        const uint32_t lse = warp.again().lse_lane() + at.slot * kShape.tile_m * 4;
        const uint32_t p_own = warp.again().p_own();
        if constexpr (Traits::kHasModifiers) {
            b.p().wait_empty(p_at);
            modify_probabilities<Element>(
                s, b.params, b.block, b.origin(step, 0), lse, [&](int m, int n, int half, float x0, float x1) {
                    const uint32_t to = p_own + Traits::kSignedOffset + (n / 2 * 2 + m) * 512 + (n % 2 * 2 + half) * 4;
                    ptx::store_shared_4(to, tile::Products<Element>::pack(x0, x1));
                });
        } else {
            make_probabilities(s, lse, b.params.score_scale);
            if (b.masked(step)) hide(s, b.params.view, b.block, b.origin(step, 0));
        }
        b.q().arrive_empty(at);
        uint32_t p[kBlocks / 2][2][4];
        pack_fragments<Element>(p, s);
        if (kShape.num_stages > 1 && i + 1 < num_steps) {
            b.q().wait_empty(ahead);
            b.fill_q(next, ahead.slot);
        }
        if constexpr (!Traits::kHasModifiers) b.p().wait_empty(p_at);
        if constexpr (!Traits::kHasModifiers || Traits::kHasParts) store_fragments(p, p_own);
        b.p().arrive_full(p_at);
        b.o().wait_full(at);
        const auto values = warp.again().ot_lane(at.slot * Traits::kOBytes);
        if constexpr (!Traits::kHasParts) {
            multiply<Element, kShape.tile_m / 16>(dv, held_a(p), values);
        } else {
            b.p().wait_full(p_at);
            multiply<Element, kShape.tile_m / 16>(dv, stored_a(warp.again().p_group()), values);
            b.p().arrive_empty(p_at);
        }
        b.o().arrive_empty(at);
        if (has_turn<Traits>(i, 0)) {
            b.ds().wait_full(ds_at);
            GradQ<Traits>(warp.again()).run(b.params, b.block, step, ds_at.slot, [&] { b.ds().arrive_empty(ds_at); });
        }
        if (kShape.num_stages == 1 && i + 1 < num_steps) {
            b.q().wait_empty(ahead);
            b.fill_q(next, ahead.slot);
        }
        step = next;
    }
    end_turn_before(b, step, num_steps, 0);
    b.wait_for_all();
    store_gradient<Element>(dv, b.target_v(), b.params, b.block, b.origin(step, 0).key, b.staged(Traits::kColumnsV));
}

// dP, dS -> dS to whoever computes dQ; dK.
template <class Traits> __device__ __forceinline__ void make_grad_keys(const BackwardState<Traits>& b) {
    using Element = typename Traits::Element;
    using Tiles = BackwardTiles<Traits>;
    constexpr BackwardShape kShape = Traits::kShape;
    constexpr int kStepsV = kShape.head_dim_v / 16, kSteps = Traits::kQueries / 16;
    constexpr bool kHoldsValues = kStepsV <= 4;
    const BackwardWarp<Traits>& warp = b.warp;
    const uint32_t v = warp.v_lane();
    const float keep_scale = Traits::kHasModifiers ? b.params.view.score.dropout.keep_scale : 1.0f;
    uint32_t values[kHoldsValues ? kStepsV : 1][2][4];
    if constexpr (kHoldsValues)
        for (int step = 0; step < kStepsV; ++step) rows_a<typename Tiles::V>(v)(values[step], step);
    float dk[2][Traits::kColumns / 8][4];
    clear(dk);

    const int num_steps = b.num_steps();
    BackwardStep step = b.first_step();
#pragma unroll 1
    for (int i = 0; i < num_steps; ++i) {
        const BackwardStep next = b.after(step);
        const RingPlace<kShape.num_stages> at(i), ahead(i + 1);
        const RingPlace<kShape.num_slots> ds_at(i);
        const RingPlace<1> p_at(i);
        float dp[2][Traits::kQueries / 8][4];
        const uint32_t delta = warp.again().delta_lane() + at.slot * kShape.tile_m * 4;
        b.o().wait_full(at);
        start_at_minus(dp, delta);
        const auto grad_o = warp.o_lane(at.slot * Traits::kOBytes);
        if constexpr (kHoldsValues)
            multiply<Element, kStepsV>(dp, held_a(values), grad_o);
        else
            multiply<Element, kStepsV>(dp, rows_a<typename Tiles::V>(v), grad_o);
        end_turn_before(b, step, i, 1);
        if constexpr (!Traits::kHasModifiers) b.o().arrive_empty(at);
        if (kShape.num_stages > 1 && i + 1 < num_steps) {
            b.o().wait_empty(ahead);
            b.fill_o(next, ahead.slot);
        }
        uint32_t ds[kSteps][2][4];
        b.p().wait_full(p_at);
        const uint32_t p_own = warp.again().p_own() + Traits::kSignedOffset;
        if (!Traits::kHasModifiers && b.masked(step)) discard_hidden<Traits>(dp, p_own);
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
            uint32_t x[2][4];
            stored_a(p_own)(x, k);
            make_grad_scores<Traits>(ds[k], dp, k, x, delta, keep_scale);
        }
        b.p().arrive_empty(p_at);
        if constexpr (Traits::kHasModifiers) {
            b.o().arrive_empty(at);
            if (b.params.grad.bias.given()) store_grad_bias(dp, b.params.grad.bias, b.block, b.origin(step, 0));
        }
        b.ds().wait_empty(ds_at);
        store_grad_scores<typename Tiles::Ds>(ds, warp.again().ds_store() + ds_at.slot * Traits::kDsBytes);
        b.ds().arrive_full(ds_at);
        b.q().wait_full(at);
        const auto queries = warp.again().qt_lane(at.slot * Traits::kQBytes);
        if constexpr (!Traits::kHasParts) {
            multiply<Element, kShape.tile_m / 16>(dk, held_a(ds), queries);
        } else {
            b.ds().wait_full(ds_at);
            multiply<Element, kShape.tile_m / 16>(
                dk, rows_a<typename Tiles::Ds>(warp.again().ds_lane() + ds_at.slot * Traits::kDsBytes), queries);
            b.ds().arrive_empty(ds_at);
        }
        b.q().arrive_empty(at);
        if (has_turn<Traits>(i, 1)) {
            b.ds().wait_full(ds_at);
            GradQ<Traits>(warp.again()).run(b.params, b.block, step, ds_at.slot, [&] { b.ds().arrive_empty(ds_at); });
        }
        if (kShape.num_stages == 1 && i + 1 < num_steps) {
            b.o().wait_empty(ahead);
            b.fill_o(next, ahead.slot);
        }
        step = next;
    }
    end_turn_before(b, step, num_steps, 1);
    b.wait_for_all();
    store_gradient<Element>(dk, b.target_k(), b.params, b.block, b.origin(step, 0).key, b.staged(Traits::kColumns));
}

}  // namespace tilewise::cuda::sm80
