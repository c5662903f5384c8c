// The second pass of a two-pass backward: dQ of 128 rows of a query head, 64 a warpgroup. K and V pass by; nothing is summed in global memory.
//
//   issue S_{i+1}, dQ_i, dP_{i+1} | wait for all: dS_{i+1}
//
// While one warpgroup makes dS, the other one's products run. Roles as in bwd.cuh, one loading warp. mbarriers: full[stage] of K and V <- an arrival,
// and the bytes of boxes; empty <- an arrival a consumer warp; Q, dO: once.
#pragma once

#include "cuda/attend/visit.cuh"
#include "cuda/ptx/warpgroup.cuh"
#include "cuda/sm90/bwd_load.cuh"
#include "cuda/sm90/bwd_tile.cuh"
#include "cuda/sm90/query_score.cuh"
#include "cuda/sm90/twopass_traits.hpp"

namespace tilewise::cuda::sm90 {

template <class Traits> __device__ __forceinline__ void init_query_barriers(uint32_t base) {
    constexpr uint32_t kWarp = ptx::kArrivalsOfWarp, kReads = Traits::kConsumerWarps * kWarp;
    Ring<Traits::kShape.k_stages>::init(base + Traits::kKBarriers, kWarp, kReads);
    Ring<Traits::kShape.v_stages>::init(base + Traits::kVBarriers, kWarp, kReads);
    ptx::mbarrier_init(base + Traits::kQBarrier, kWarp);
    ptx::mbarrier_init(base + Traits::kOBarrier, kWarp);
    ptx::mbarrier_init(base + Traits::kLanding, 1);
}

// By all threads; false for a tile without rows.
template <class Traits>
__device__ inline bool find_rows(const BulkBackwardParams& params, uint32_t number, RowBlock& b, Interval* hull) {
    const AttentionView& view = params.base.view;
    b.tile = row_tile_of(params.second.tiles, view, number);
    if (b.tile.num_rows <= 0) return false;
    const Sequence& s = b.tile.sequence;
    b.mask = view.mask_of(b.tile.batch, s);
    b.keys = key_tiles_of<Traits::kTileN>(block_visit(view, b.mask, b.tile, hull), 0, 1);
#pragma unroll
    for (int group = 0; group < kTwoPassGroups; ++group) {
        const int32_t first = b.tile.first_row + group * kGroupRows;
        const int32_t end = min(first + kGroupRows, b.tile.first_row + b.tile.num_rows);
        Interval interior = {0, 0};
        if (first < end && !has_row_intervals(view)) interior = interior_range(b.mask, first, end);
        b.interior[group] = {(interior.begin + Traits::kTileN - 1) / Traits::kTileN, interior.end / Traits::kTileN};
    }
    const int64_t first_tile = view.sequences.cu_seqlens_q.given()
                                   ? first_tile_of(view.sequences.cu_seqlens_q, b.tile.batch, kTwoPassTile)
                                   : b.tile.batch * ceil_div(view.sequences.seqlen_q, kTwoPassTile);
    b.first_stat = params.rows.index(b.tile.first_head, first_tile) * kTwoPassTile + b.tile.first_row;
    return true;
}

template <class Traits> struct QueryPassProducer {
    const BulkBackwardParams& params;
    const RowBlock& block;
    const uint32_t base;
    TileLoader loader;

    template <int kPanels>
    __device__ __forceinline__ void load_rows(const CUtensorMap& map, uint32_t to, uint32_t full) {
        const RowTile& t = block.tile;
        const ptx::BoxPlace place = {0, t.first_head, static_cast<int32_t>(t.sequence.q_row + t.first_row),
                                     static_cast<int32_t>(t.sequence.q_batch)};
        const bool has_rows_behind = t.sequence.q_row + t.sequence.seqlen_q < params.rows_of_q;
        loader.template load<kPanels>(
            {&map, place, to, full, Traits::kRows, t.num_rows, has_rows_behind, ptx::CacheHint::kEvictFirst});
    }
    template <int kPanels>
    __device__ __forceinline__ void load_keys(const CUtensorMap& map, int32_t n, uint32_t to, uint32_t full) {
        const Sequence& s = block.tile.sequence;
        const ptx::BoxPlace place = {0, block.tile.head_kv, static_cast<int32_t>(s.first_key + n * Traits::kTileN),
                                     static_cast<int32_t>(s.k_batch)};
        loader.template load<kPanels>({&map, place, to, full, Traits::kTileN, s.seqlen_k - n * Traits::kTileN,
                                       s.first_key + s.seqlen_k < params.rows_of_k, ptx::CacheHint::kEvictLast});
    }
    __device__ void run() {
        Ring<Traits::kShape.k_stages> k = {base + Traits::kKBarriers};
        Ring<Traits::kShape.v_stages> v = {base + Traits::kVBarriers};
        const KeyTiles keys = block.keys;
        // Without steps the consumers stage their zeros in Q right away: a copy would land on top of them.
        if (keys.first >= keys.last) return;
        load_rows<Traits::kKPanels>(params.second.q, base, base + Traits::kQBarrier);
        for (int32_t n = keys.last - 1; n >= keys.first; --n) {
            k.wait_empty();
            load_keys<Traits::kKPanels>(params.second.k, n, base + Traits::kKOffset + k.stage() * Traits::kKTileBytes,
                                        k.full_barrier());
            k.advance();
            if (n == keys.last - 1)
                load_rows<Traits::kVPanels>(params.second.grad_o, base + Traits::kOOffset, base + Traits::kOBarrier);
            v.wait_empty();
            load_keys<Traits::kVPanels>(params.second.v, n, base + Traits::kVOffset + v.stage() * Traits::kVTileBytes,
                                        v.full_barrier());
            v.advance();
        }
    }
};

template <class Traits> struct QueryPass {
    static constexpr TwoPassShape kShape = Traits::kShape;
    static constexpr int kTileN = Traits::kTileN;
    using Element = typename Traits::Element;
    using Scores = typename WgmmaOf<Element, kTileN>::Type;
    using Sums = typename WgmmaOf<Element, kShape.head_dim>::Type;
    const BulkBackwardParams& params;
    const RowBlock& block;
    const uint32_t base;
    const GroupThread self;

    float dq[kShape.head_dim / 2], s[kTileN / 2], dp[kTileN / 2];
    uint32_t ds[kTileN / 4];

    __device__ __forceinline__ Ring<kShape.k_stages> k(uint32_t i) const { return {base + Traits::kKBarriers, i}; }
    __device__ __forceinline__ Ring<kShape.v_stages> v(uint32_t i) const { return {base + Traits::kVBarriers, i}; }
    __device__ __forceinline__ uint32_t k_tile(uint32_t i) const {
        return base + Traits::kKOffset + k(i).stage() * Traits::kKTileBytes;
    }
    __device__ __forceinline__ uint32_t v_tile(uint32_t i) const {
        return base + Traits::kVOffset + v(i).stage() * Traits::kVTileBytes;
    }

    // This warpgroup's 64 rows of Q or dO, times a tile of K or V.
    template <int kDepth>
    __device__ __forceinline__ void issue_product(float (&to)[kTileN / 2], uint32_t rows, uint32_t keys) const {
        const uint64_t a = operand(rows + self.group * kGroupRows * kLineBytes), b = operand(keys);
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < kDepth / 16; ++i)
            Scores::template shared<0>(to, a + columns_step(i, Traits::kRows), b + columns_step(i, kTileN), i > 0);
        ptx::wgmma_commit();
    }
    __device__ __forceinline__ void issue_scores(uint32_t i) {
        k(i).wait_full();
        issue_product<kShape.head_dim>(s, base, k_tile(i));
    }
    __device__ __forceinline__ void issue_grad_probabilities(uint32_t i) {
        v(i).wait_full();
        issue_product<kShape.head_dim_v>(dp, base + Traits::kOOffset, v_tile(i));
    }
    __device__ __forceinline__ void issue_sum(uint32_t i) {
        const uint64_t b = operand(k_tile(i), kTileN * kLineBytes);
        ptx::wgmma_fence();
#pragma unroll
        for (int j = 0; j < kTileN / 16; ++j) Sums::template registers<1>(dq, &ds[4 * j], b + rows_step(j), 1);
        ptx::wgmma_commit();
    }
    // S_i and dP_i are there.
    __device__ __forceinline__ void make_grad_scores(uint32_t i) {
        ptx::pin(s);
        ptx::pin(dp);
        ptx::mbarrier_arrive_warp(v(i).empty_barrier());
        const int32_t n = block.keys.last - 1 - static_cast<int32_t>(i);
        const KeyTiles interior = block.interior[self.group];
        const bool is_masked = n < interior.first || n >= interior.last;
        const int32_t row = self.row(0);
        const QueryStep at = {params, block, base + Traits::kRowsOffset + 16 * row, row, n * kTileN, is_masked};
        if constexpr (Traits::kHasModifiers)
            modified_query_scores<Element>(s, dp, ds, at);
        else if (is_masked)
            plain_query_scores<Element, true>(s, dp, ds, at);
        else
            plain_query_scores<Element, false>(s, dp, ds, at);
        ptx::pin(ds);
    }

    __device__ __forceinline__ void run() {
        const uint32_t num_steps = static_cast<uint32_t>(max(block.keys.last - block.keys.first, 0));
#pragma unroll
        for (float& sum : dq) sum = 0.0f;
        if (num_steps > 0) {
            ptx::mbarrier_wait(base + Traits::kQBarrier, 0);
            issue_scores(0);
            ptx::mbarrier_wait(base + Traits::kOBarrier, 0);
            issue_grad_probabilities(0);
            ptx::wgmma_wait<0>();
            ptx::pin(dq);
            make_grad_scores(0);
#pragma unroll 1
            for (uint32_t i = 0; i + 1 < num_steps; ++i) {
                issue_scores(i + 1);
                issue_sum(i);
                issue_grad_probabilities(i + 1);
                ptx::wgmma_wait<0>();
                ptx::pin(dq);
                ptx::mbarrier_arrive_warp(k(i).empty_barrier());
                make_grad_scores(i + 1);
            }
            issue_sum(num_steps - 1);
            ptx::wgmma_wait<0>();
            ptx::pin(dq);
        }
        store();
    }

    // Registers -> this warpgroup's rows of Q in shared memory -> grad_q.
    __device__ __forceinline__ void store() const {
        constexpr int kPanelBytes = Traits::kRows * kLineBytes;
        const float factor = params.base.view.score.softmax_scale;
        const int barrier = kStoreBarrier + self.group, lane = self.thread % 32;
        const int row = self.group * kGroupRows + self.thread / 32 * 16 + lane % 16;
        ptx::barrier_sync(barrier, 128);
#pragma unroll
        for (int c = 0; c < kShape.head_dim / 16; ++c) {
            const float* const x = &dq[8 * c];
            using P = tile::Products<Element>;
            ptx::stmatrix_x4(base + c / 4 * kPanelBytes + line_chunk(row, c % 4 * 2 + lane / 16),
                             P::pack(x[0] * factor, x[1] * factor), P::pack(x[2] * factor, x[3] * factor),
                             P::pack(x[4] * factor, x[5] * factor), P::pack(x[6] * factor, x[7] * factor));
        }
        ptx::barrier_sync(barrier, 128);
        const RowTile& t = block.tile;
        const HeadTensor& to = params.base.grad.q;
        const int32_t first = self.group * kGroupRows;
        char* const data = static_cast<char*>(to.data);
#pragma unroll 1
        for (int line = self.thread / 8; line < min(kGroupRows, t.num_rows - first); line += 16) {
            const int64_t offset =
                to.offset(t.sequence.q_batch, t.sequence.q_row + t.first_row + first + line, t.first_head) * 2;
#pragma unroll
            for (int panel = 0; panel < Traits::kKPanels; ++panel) {
                const int column = panel * kPanelColumns + self.thread % 8 * 8;
                if (column < params.base.dims.head_dim)
                    *reinterpret_cast<uint4*>(data + offset + column * 2) =
                        ptx::load_shared_16(base + panel * kPanelBytes + line_chunk(first + line, self.thread % 8));
            }
        }
    }
};

template <class Traits> __device__ __forceinline__ void backward_queries(const BulkBackwardParams& params) {
    extern __shared__ __align__(1024) unsigned char shared[];
    RowBlock& block = *reinterpret_cast<RowBlock*>(shared + Traits::kBlockOffset);
    const uint32_t base = ptx::shared_address(shared);
    {
        RowBlock found;
        if (!find_rows<Traits>(params, blockIdx.x, found, reinterpret_cast<Interval*>(shared + Traits::kHullOffset)))
            return;
        if (threadIdx.x == 0) {
            block = found;
            init_query_barriers<Traits>(base);
            ptx::fence_barrier_init();
        }
        describe_rows<Traits>(params, found, shared);
    }
    __syncthreads();
    const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
    if (warpgroup == 0) {
        ptx::lower_registers<Traits::kProducerRegisters>();
        const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0);
        QueryPassProducer<Traits> producer = {params, block, base, {base + Traits::kLanding}};
        if (warp == 0) producer.run();
    } else {
        ptx::raise_registers<Traits::kConsumerRegisters>();
        QueryPass<Traits> pass = {params, block, base, {warpgroup - 1, static_cast<int>(threadIdx.x) % 128}};
        pass.run();
    }
}

}  // namespace tilewise::cuda::sm90
