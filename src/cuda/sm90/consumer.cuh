// A consumer warpgroup: 64 packed query rows. Its steps (one key tile each) run through all row tiles of the block as one stream. Step i issues
// S_i = Q K_i^T and O += P_{i-1} V_{i-1} together, then makes P_i from S_i: the last product of a row tile is in flight with the first of
// the next. While one warpgroup does its softmax, another one's products keep the tensor cores busy.
#pragma once

#include "cuda/sm90/epilogue.cuh"
#include "cuda/sm90/mask.cuh"
#include "cuda/sm90/products.cuh"
#include "cuda/sm90/work.cuh"

namespace tilewise::cuda::sm90 {

template <class Traits> struct ConsumerRings {
    typename Barriers<Traits>::QRing q;
    typename Barriers<Traits>::KvRing k, v;
    typename Barriers<Traits>::WorkRing work;  // the row tile whose O is summed
};

template <class Traits> struct Consumer {
    static constexpr ForwardShape kShape = Traits::kShape;
    static constexpr int kTileN = kShape.tile_n;
    using Element = typename Traits::Element;
    using B = Barriers<Traits>;
    const BulkForwardParams& params;
    unsigned char* const shared;
    const uint32_t base;
    const GroupThread self;

    ConsumerRings<Traits> ring;

    float s[kTileN / 2];             // scores
    uint32_t p[kTileN / 4];          // probabilities, the A operand of the pending product
    float o[kShape.head_dim_v / 2];  // sums of the row tile
    RowStats<Element> rows;
    bool pending = false;    // its last product P V is still to be issued,
    bool fresh = false;      // and is its first
    bool skips_one = false;  // this warpgroup does not see the next row tile's first key tile

    __device__ __forceinline__ const WorkItem& item(uint32_t stage) const { return work_item<Traits>(shared, stage); }

    __device__ __forceinline__ void issue_scores() {
        using Wgmma = typename WgmmaOf<Element, kTileN>::Type;
        const uint64_t a = operand(base + ring.q.stage() * Traits::kQBytes + self.group * kGroupRows * kLineBytes);
        const uint64_t b = operand(base + Traits::kKOffset + ring.k.stage() * Traits::kKBytes);
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < kShape.head_dim / 16; ++i)
            Wgmma::template shared<0>(s, a + columns_step(i, Traits::kTileM), b + columns_step(i, kTileN), i > 0);
        ptx::wgmma_commit();
    }
    __device__ __forceinline__ void issue_values(bool is_first) {
        using Wgmma = typename WgmmaOf<Element, kShape.head_dim_v>::Type;
        const uint64_t b = operand(base + Traits::kVOffset + ring.v.stage() * Traits::kVBytes, kTileN * kLineBytes);
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < kTileN / 16; ++i)
            Wgmma::template registers<1>(o, &p[4 * i], b + rows_step(i), i > 0 || !is_first);
        ptx::wgmma_commit();
    }

    __device__ __forceinline__ void take_turn() const {
        if constexpr (kShape.turns != 0) ptx::barrier_sync(5 + self.group, 256);
    }
    __device__ __forceinline__ void pass_turn() const {
        if constexpr (kShape.turns != 0) ptx::barrier_arrive(5 + (self.group + 1) % kShape.warpgroups, 256);
    }
    // Hands back a key tile unread, in step with the other warpgroups.
    __device__ __forceinline__ void skip_keys() {
        ring.k.wait_full();
        take_turn();
        pass_turn();
        ring.k.release();
    }
    __device__ __forceinline__ void skip_values() {
        ring.v.wait_full();
        ring.v.release();
    }

    __device__ __forceinline__ void store_current() {
        store_tile<Traits>(params, item(ring.work.stage()), self, rows, o, base + Traits::kOOffset);
        ring.work.release();
    }

    // One key tile. kGeneral: it may be masked, the first of a row tile or the second; the other instance is the interior loop.
    // kPending: a product P V goes with it.
    struct Step {
        int32_t n = 0;
        bool is_head = false, is_last = false, is_masked = false;
    };
    template <bool kGeneral, bool kPending> __device__ __forceinline__ void step(const Step& at, uint32_t next) {
        if (kGeneral && at.is_head) {
            if (kShape.skips != 0 && skips_one) skip_keys();
            ring.q.wait_full();
        }
        ring.k.wait_full();
        take_turn();
        issue_scores();
        if constexpr (kPending) {
            ring.v.wait_full();
            issue_values(kGeneral && fresh);
            if constexpr (kGeneral) fresh = false;
        }
        pass_turn();
        ptx::wgmma_wait<kPending ? 1 : 0>();
        ptx::pin(s);
        ring.k.release();
        if (at.is_last) ring.q.release();

        [[maybe_unused]] const RowStats<Element> done = rows;
        if (kGeneral && at.is_head) rows.clear();
        const TileOrigin origin = {self.first_row(), at.n * kTileN};
        if constexpr (Traits::kHasModifiers)
            if (params.has_modifiers) modify_scores(blocks_of_columns(s), params.base.view, item(next).tile, origin);
        if constexpr (kGeneral)
            if (at.is_masked)
                mask_outside(s, origin, [&](int32_t row) { return keys_of_row(params.base.view, item(next), row); });
        float moved[2];
        const bool rare = softmax_step(rows, s, moved, params.base.score_scale, params.score_slack);
        if constexpr (Traits::kHasModifiers)
            if (params.base.view.score.dropout.threshold > 0)
                drop_probabilities(blocks_of_columns(s), params.base.view, item(next).tile, origin);
        if constexpr (kPending) {
            ptx::wgmma_wait<0>();
            ptx::pin(o);
            ptx::pin(s);
            ring.v.release();
        }
        if (kGeneral && at.is_head) {
            if (kShape.skips != 0 && skips_one) skip_values();
            if constexpr (kPending) {
                const RowStats<Element> own = rows;
                rows = done;
                store_current();
                rows = own;
            }
            fresh = true;
        } else if (rare) {
#pragma unroll
            for (int i = 0; i < kShape.head_dim_v / 2; ++i) o[i] *= moved[i / 2 % 2];
        }
#pragma unroll
        for (int i = 0; i < kTileN / 4; ++i) p[i] = tile::Products<Element>::pack(s[2 * i], s[2 * i + 1]);
    }

    // The pending product of the current row tile, with nothing to overlap it.
    __device__ __forceinline__ void finish_current() {
        ring.v.wait_full();
        issue_values(fresh);
        ptx::wgmma_wait<0>();
        ptx::pin(o);
        ring.v.release();
        store_current();
        pending = fresh = false;
    }
    __device__ __forceinline__ void skip(int32_t count) {
        for (; count > 0; --count) {
            skip_keys();
            skip_values();
        }
    }

    // The part of the block's key tiles that this warpgroup's rows see; at least one.
    __device__ __forceinline__ KeyTiles own_tiles(const WorkItem& next) const {
        if constexpr (kShape.skips == 0) return next.keys;
        KeyTiles own = next.groups[self.group].visit;
        if (own.last <= own.first) own = {next.keys.first, next.keys.first + 1};
        own.first = min(max(own.first, next.keys.first), next.keys.last - 1);
        own.last = min(max(own.last, own.first + 1), next.keys.last);
        return own;
    }

    __device__ __forceinline__ void run() {
        if constexpr (kShape.turns != 0)
            if (self.group == kShape.warpgroups - 1) ptx::barrier_arrive(5, 256);
        int32_t behind = 0;  // key tiles behind the last row tile that this warpgroup does not see
        while (true) {
            if (kShape.finishes != 0 && pending) finish_current();
            if (kShape.skips != 0 && behind > 0) {
                if (pending) finish_current();
                skip(behind);
                behind = 0;
            }
            const typename B::WorkRing ahead = {ring.work.full, ring.work.count + (pending ? 1 : 0)};
            const uint32_t next = ahead.stage();
            ahead.wait_full();
            const WorkItem& w = item(next);
            if (w.is_end) break;
            const KeyTiles own = own_tiles(w), interior = w.groups[self.group].interior;
            if constexpr (kShape.skips != 0) {
                // One tile ahead can be handed back around the pending product. More, or any behind, would hold stages that another
                // warpgroup needs to get here.
                const int32_t before = w.keys.last - own.last;
                skips_one = before == 1;
                behind = own.first - w.keys.first;
                if (before > 1) {
                    if (pending) finish_current();
                    skip(before);
                }
            }
            auto masked = [&](int32_t n) { return n >= interior.last || n < interior.first; };
            int32_t n = own.last - 1;
            if (kShape.finishes == 0 && pending)
                step<true, true>({n, true, n == own.first, masked(n)}, next);
            else
                step<true, false>({n, true, n == own.first, masked(n)}, next);
            pending = true;
            while (--n >= own.first) {
                if (Traits::kHasModifiers || masked(n) ||
                    fresh)  // their scores take most of the time: one instance less to compile
                    step<true, true>({n, false, n == own.first, masked(n)}, next);
                else
                    step<false, true>({n, false, n == own.first, false}, next);
            }
        }
        if (pending) finish_current();
        if (kShape.staged != 0 && self.thread == 0)
            ptx::bulk_wait_read();  // the staging must outlive the last store's reads
    }
};

}  // namespace tilewise::cuda::sm90
