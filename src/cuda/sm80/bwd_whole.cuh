// The main loop of the backward where every warp makes S, P, dP, dS of its keys (and, with parts, of its part of the queries), then its
// columns of dV and dK, and a piece of dQ. P stays in fp32 registers until it is used. One block barrier a step: dS (and P, with parts) of a step
// is complete after it; two slots, so that the next step may write while the last is read.
#pragma once

#include "cuda/sm80/bwd_roles.cuh"

namespace tilewise::cuda::sm80 {

// S, P, dP and dS of kPass queries in registers.
template <class Traits> struct PassOfQueries {
    static constexpr int kPass = Traits::kQueries < 32 ? Traits::kQueries : 32;
    static constexpr int kNumPasses = Traits::kQueries / kPass;
    using Element = typename Traits::Element;
    using Tiles = BackwardTiles<Traits>;
    uint32_t p[kPass / 16][2][4];
    uint32_t ds[kPass / 16][2][4];

    __device__ __forceinline__ void make(const BackwardState<Traits>& b, BackwardStep step, int stage, int pass) {
        constexpr BackwardShape kShape = Traits::kShape;
        const BackwardWarp<Traits> warp = b.warp.again();
        const PairOrigin origin = b.origin(step, pass * kPass);
        const uint32_t values = stage * kShape.tile_m * 4 + pass * kPass * 4;
        const bool masked = b.masked(step);
        float s[2][kPass / 8][4], dp[2][kPass / 8][4];
        uint32_t x[kPass / 16][2][4];
        clear(s);
        multiply<Element, kShape.head_dim / 16>(s, rows_a<typename Tiles::K>(warp.k_lane()),
                                                warp.q_lane(stage * Traits::kQBytes + pass * kPass * Tiles::Q::kPitch));
        if constexpr (Traits::kHasModifiers) {
            modify_probabilities<Element>(s, b.params, b.block, origin, warp.lse_lane() + values,
                                          [&x](int m, int n, int half, float x0, float x1) {
                                              x[n / 2][m][n % 2 * 2 + half] = tile::Products<Element>::pack(x0, x1);
                                          });
        } else {
            make_probabilities(s, warp.lse_lane() + values, b.params.score_scale);
            if (masked) hide(s, b.params.view, b.block, origin);
        }
        pack_fragments<Element>(p, s);
        start_at_minus(dp, warp.delta_lane() + values);
        multiply<Element, kShape.head_dim_v / 16>(
            dp, rows_a<typename Tiles::V>(warp.v_lane()),
            warp.o_lane(stage * Traits::kOBytes + pass * kPass * Tiles::O::kPitch));
        if constexpr (Traits::kHasModifiers) {
            const float keep_scale = b.params.view.score.dropout.keep_scale;
#pragma unroll
            for (int k = 0; k < kPass / 16; ++k)
                make_grad_scores<Traits>(ds[k], dp, k, x[k], warp.delta_lane() + values, keep_scale);
            if (b.params.grad.bias.given()) store_grad_bias(dp, b.params.grad.bias, b.block, origin);
        } else {
            if (masked) {  // dP of hidden pairs may be anything
#pragma unroll
                for (int i = 0; i < kPass; ++i)
                    if (s[i / 4 % 2][i / 8][i % 4] == 0.0f) dp[i / 4 % 2][i / 8][i % 4] = 0.0f;
            }
#pragma unroll
            for (int i = 0; i < kPass; ++i) dp[i / 4 % 2][i / 8][i % 4] *= s[i / 4 % 2][i / 8][i % 4];
            pack_fragments<Element>(ds, dp);
        }
    }
};

template <class Traits> __device__ __forceinline__ void make_all(const BackwardState<Traits>& b) {
    using Element = typename Traits::Element;
    using Tiles = BackwardTiles<Traits>;
    using Pass = PassOfQueries<Traits>;
    constexpr BackwardShape kShape = Traits::kShape;
    const BackwardWarp<Traits>& warp = b.warp;
    float dv[2][Traits::kColumnsV / 8][4], dk[2][Traits::kColumns / 8][4];
    clear(dv);
    clear(dk);

    const int num_steps = b.num_steps();
    BackwardStep step = b.first_step();
#pragma unroll 1
    for (int i = 0; i < num_steps; ++i) {
        const BackwardStep next = b.after(step);
        const RingPlace<2> at(i), ahead(i + 1);  // of Q and dO, and of dS and P
        // Nobody reads the last step's rows any more: without parts since the barrier of that step, with parts after that of this one.
        auto fill_next = [&] {
            if (i + 1 == num_steps) return;
            b.fill_q(next, ahead.slot);
            b.fill_o(next, ahead.slot);
        };
        if constexpr (!Traits::kHasParts) fill_next();
        b.q().wait_full(at);
        b.o().wait_full(at);
        const BackwardWarp<Traits> again = warp.again();
        const auto queries = again.qt_lane(at.slot * Traits::kQBytes);
        const auto values = again.ot_lane(at.slot * Traits::kOBytes);
#pragma unroll
        for (int pass = 0; pass < Pass::kNumPasses; ++pass) {
            Pass made;
            made.make(b, step, at.slot, pass);
            store_grad_scores<typename Tiles::Ds>(
                made.ds, Tiles::Ds::moved(again.ds_store() + at.slot * Traits::kDsBytes, pass * Pass::kPass / 8));
            if constexpr (Traits::kHasParts) {
                store_fragments(made.p, again.p_own() + at.slot * Traits::kPBytes + pass * (Pass::kPass / 16) * 1024);
            } else {
                multiply<Element, Pass::kPass / 16>(dv, held_a(made.p),
                                                    values.after(pass * Pass::kPass * Tiles::O::kPitch));
                multiply<Element, Pass::kPass / 16>(dk, held_a(made.ds),
                                                    queries.after(pass * Pass::kPass * Tiles::Q::kPitch));
            }
            if (pass == 0) end_turn_before(b, step, i, 0);
        }
        __syncthreads();
        if constexpr (Traits::kHasParts) {
            fill_next();
            multiply<Element, kShape.tile_m / 16>(dv, stored_a(again.p_group() + at.slot * Traits::kPBytes), values);
            multiply<Element, kShape.tile_m / 16>(
                dk, rows_a<typename Tiles::Ds>(again.ds_lane() + at.slot * Traits::kDsBytes), queries);
        }
        GradQ<Traits>(warp.again()).run(b.params, b.block, step, at.slot, [] {});
        step = next;
    }
    end_turn_before(b, step, num_steps, 0);
    __syncthreads();
    const uint32_t staged = b.staged(Traits::kColumns > Traits::kColumnsV ? Traits::kColumns : Traits::kColumnsV);
    store_gradient<Element>(dv, b.target_v(), b.params, b.block, b.origin(step, 0).key, staged);
    __syncwarp();
    store_gradient<Element>(dk, b.target_k(), b.params, b.block, b.origin(step, 0).key, staged);
}

}  // namespace tilewise::cuda::sm80
