// The producer's warps. The first loads K and V once and tiles of Q and dO step by step, and says what each step is; the second adds the
// staged tiles of dQ to their sums in global memory.
#pragma once

#include "cuda/ptx/global.cuh"
#include "cuda/sm90/bwd_block.cuh"
#include "cuda/sm90/bwd_load.cuh"
#include "cuda/sm90/bwd_tile.cuh"

namespace tilewise::cuda::sm90 {

template <class Traits> struct BackwardProducer {
    static constexpr int kTileM = Traits::kTileM;
    const BulkBackwardParams& params;
    const KeyBlock& block;
    const uint32_t base;
    TileLoader loader;

    __device__ __forceinline__ static int lane() { return TileLoader::lane(); }

    template <int kPanels>
    __device__ __forceinline__ void load_keys(const CUtensorMap& map, uint32_t to, uint32_t full) {
        const Sequence& s = block.sequence;
        const int32_t row = static_cast<int32_t>(s.first_key + block.first_key);
        const bool has_rows_behind = s.first_key + s.seqlen_k < params.rows_of_k;
        loader.template load<kPanels>({&map,
                                       {0, block.head_kv, row, static_cast<int32_t>(s.k_batch)},
                                       to,
                                       full,
                                       Traits::kKeys,
                                       s.seqlen_k - block.first_key,
                                       has_rows_behind,
                                       ptx::CacheHint::kEvictFirst});
    }

    // Which warpgroups mask the step, and for these what each of its rows sees of the block's keys.
    __device__ __forceinline__ void describe_step(BackwardStep step, uint32_t stage) const {
        uint32_t masked = 0;
#pragma unroll
        for (int group = 0; group < Traits::kKeyGroups; ++group) {
            const Interval interior = block.interior[group];
            if (step.tile < interior.begin || step.tile >= interior.end) masked |= 1u << group;
        }
        if (masked != 0) {
#pragma unroll 1
            for (int i = lane(); i < kTileM; i += 32) {
                const int32_t row = step.tile * kTileM + i;
                Interval keys = {0, 0};
                if (row < block.sequence.seqlen_q)
                    keys = params.base.view.keys_of(block.mask, block.batch, block.sequence, row);
                const int begin = clamp_to(keys.begin - block.first_key, 0, Traits::kKeys);
                const int end = clamp_to(keys.end - block.first_key, begin, Traits::kKeys);
                ptx::store_shared_2(base + Traits::kSeenOffset + stage * Traits::kSeenBytes + 2 * i,
                                    static_cast<uint16_t>(begin | (end - begin) << 8));
            }
        }
        if (lane() == 0)
            ptx::store_shared_16(base + Traits::kStepOffset + stage * 16,
                                 {static_cast<uint32_t>(step.tile), static_cast<uint32_t>(step.head), masked, 0});
        __syncwarp();
    }

    __device__ void run_loads() {
        Ring<Traits::kShape.q_stages> q = {base + Traits::kQBarriers};
        Ring<Traits::kShape.o_stages> o = {base + Traits::kOBarriers};
        const int32_t num_steps = block.num_steps();
        // Without steps the consumers stage their zeros in K and V right away: a copy would land on top of them.
        if (num_steps > 0) load_keys<Traits::kKPanels>(params.k, base, base + Traits::kKBarrier);
        BackwardStep step = first_step(block);
        const Sequence& s = block.sequence;
        const bool has_rows_behind = s.q_row + s.seqlen_q < params.rows_of_q;
        for (int32_t i = 0; i < num_steps; ++i, step = step_after(step, block.tiles)) {
            const int32_t row = step.tile * kTileM, num_rows = s.seqlen_q - row;
            const ptx::BoxPlace place = {0, step.head, static_cast<int32_t>(s.q_row + row),
                                         static_cast<int32_t>(s.q_batch)};
            const int64_t stats = params.rows.index(step.head, block.first_tile + step.tile) * kTileM;
            q.wait_empty();
            describe_step(step, q.stage());
            loader.template load<Traits::kKPanels>(
                {&params.q, place, base + Traits::kQOffset + q.stage() * Traits::kQBytes, q.full_barrier(), kTileM,
                 num_rows, has_rows_behind, ptx::CacheHint::kEvictLast, params.rows.lse_log2 + stats,
                 base + Traits::kLseOffset + q.stage() * Traits::kStatBytes});
            q.advance();
            if (i == 0) load_keys<Traits::kVPanels>(params.v, base + Traits::kVOffset, base + Traits::kVBarrier);
            o.wait_empty();
            loader.template load<Traits::kVPanels>(
                {&params.grad_o, place, base + Traits::kOOffset + o.stage() * Traits::kOBytes, o.full_barrier(), kTileM,
                 num_rows, has_rows_behind, ptx::CacheHint::kEvictLast, params.rows.delta + stats,
                 base + Traits::kDeltaOffset + o.stage() * Traits::kStatBytes});
            o.advance();
        }
    }

    // One thread. A step's dQ is added by one copy, or several, that the engine turns into additions in the second-level cache.
    __device__ void run_sums() const {
        constexpr uint32_t kPieceBytes = 8192;
        Ring<Traits::kShape.dq_stages> ring = {base + Traits::kDqBarriers};
        BackwardStep step = first_step(block);
        const int32_t num_steps = block.num_steps();
        for (int32_t i = 0; i < num_steps; ++i, step = step_after(step, block.tiles)) {
            const int64_t tile = params.rows.index(step.head, block.first_tile + step.tile);
            char* const to = reinterpret_cast<char*>(params.rows.dq) + tile * Traits::kDqBytes;
            const uint32_t from = base + Traits::kDqOffset + ring.stage() * Traits::kDqBytes;
            ring.wait_full();
            int32_t* const turns = params.rows.turns;
            if (turns != nullptr) {
                const int32_t turn = turn_of<Traits>(block, step.tile);
                while (ptx::load_acquire(turns + tile) != turn) __nanosleep(20);
                ptx::fence_async_proxy_all();
            }
#pragma unroll 1
            for (uint32_t at = 0; at < Traits::kDqBytes; at += kPieceBytes)
                ptx::add_bytes(to + at, from + at, min(kPieceBytes, Traits::kDqBytes - at));
            ptx::bulk_commit();
            ptx::bulk_wait_read();
            ptx::mbarrier_arrive(ring.empty_barrier());
            if (turns != nullptr) {
                ptx::bulk_wait();
                ptx::fence_async_proxy_all();
                ptx::add_release(turns + tile, 1);
            }
            ring.advance();
        }
        ptx::bulk_wait();
    }
};

}  // namespace tilewise::cuda::sm90
