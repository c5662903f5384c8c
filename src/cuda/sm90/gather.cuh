// One warp's loads of key tiles into a ring: as boxes by the copy engine, or, where a page does not hold whole tiles, line by line.
#pragma once

#include "cuda/attend/kv_source.cuh"
#include "cuda/ptx/bulk.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/sm90/work.cuh"

namespace tilewise::cuda::sm90 {

// landing: a barrier for boxes whose last rows have to be cleared (V: 0 * NaN is no 0); 0: rows that do not exist may hold anything (K: their
// scores are replaced).
template <class Traits, int kPanels> struct KeyLoader {
    static constexpr int kTileN = Traits::kShape.tile_n;
    static constexpr int kPanelBytes = kTileN * kLineBytes, kBytes = kPanels * kPanelBytes;
    using KvRing = Ring<Traits::kShape.kv_stages>;
    const BulkForwardParams& params;
    KvRing ring;
    const uint32_t stages;
    const uint32_t landing;
    uint32_t landing_phase = 0;
    uint32_t pending = 0;  // full barrier of a gathered tile that has not been handed on yet

    __device__ __forceinline__ int lane() const { return static_cast<int>(threadIdx.x) % 32; }

    __device__ __forceinline__ void load(const HeadTensor& tensor, const RowTile& t, int32_t n, int32_t first_column,
                                         const CUtensorMap& map) {
        const uint32_t tile = stages + ring.stage() * kBytes;
        if (!Traits::kHasModifiers || params.bulk_keys) {
            ring.wait_empty();
            load_box(t, n, first_column, map, tile);
        } else {
            if (!ptx::mbarrier_test(ring.empty_barrier(), ring.phase() ^ 1u)) {
                flush();
                ring.wait_empty();
            }
            gather(tensor, t, n, first_column, tile);
        }
        ring.advance();
    }

    // A gathered tile is handed on when the next one is under way. Before its warp waits for anything that consumers do, it must be handed on.
    __device__ __forceinline__ void flush() {
        if (Traits::kHasModifiers && pending != 0) {
            ptx::cp_async_wait<0>();
            hand_on(pending);
            pending = 0;
        }
    }

private:
    // The copies and stores of all lanes are there for wgmma.
    __device__ __forceinline__ void hand_on(uint32_t barrier) const {
        ptx::fence_async_proxy();
        ptx::mbarrier_arrive_warp(barrier);
    }

    __device__ __forceinline__ void load_box(const RowTile& t, int32_t n, int32_t first_column, const CUtensorMap& map,
                                             uint32_t tile) {
        const int32_t key = n * kTileN;
        const Sequence& s = t.sequence;
        const bool clears = landing != 0 && key + kTileN > s.seqlen_k && s.first_key + s.seqlen_k < params.mapped_keys;
        const uint32_t barrier = clears ? landing : ring.full_barrier();
        if (lane() == 0) {
            const KeyPlace place = params.base.view.place_of(s, key);
            ptx::BoxPlace box = {first_column, t.head_kv, static_cast<int32_t>(place.slot),
                                 static_cast<int32_t>(place.page)};
            ptx::mbarrier_expect_bytes(barrier, kBytes);
#pragma unroll
            for (int panel = 0; panel < kPanels; ++panel, box.column += kPanelColumns)
                ptx::copy_box(tile + panel * kPanelBytes, &map, box, barrier, ptx::CacheHint::kEvictLast);
        }
        __syncwarp();
        if (ptx::kArrivalsOfWarp > 1 && !clears && lane() > 0) ptx::mbarrier_arrive(barrier);
        if (!clears) return;
        ptx::mbarrier_wait(landing, landing_phase);
        landing_phase ^= 1u;
        clear_rows(tile, s.seqlen_k - key);
        hand_on(ring.full_barrier());
    }

    // The lines from `first` on, of all panels.
    __device__ __forceinline__ void clear_rows(uint32_t tile, int32_t first) const {
        constexpr int kChunks = kLineBytes / 16;
#pragma unroll 1
        for (int i = max(first, 0) * kChunks + lane(); i < kTileN * kChunks; i += 32)
#pragma unroll
            for (int panel = 0; panel < kPanels; ++panel)
                ptx::store_shared_16(tile + panel * kPanelBytes + i * 16, uint4{});
    }

    // Eight lanes a line.
    __device__ __forceinline__ void gather(const HeadTensor& tensor, const RowTile& t, int32_t n, int32_t first_column,
                                           uint32_t tile) {
        const Sequence& s = t.sequence;
        const int32_t columns = landing != 0 ? params.base.dims.head_dim_v : params.base.dims.head_dim;
        const char* const data = static_cast<const char*>(tensor.data) + first_column * 2;
        const int chunk = lane() % 8;
#pragma unroll 1
        for (int row = lane() / 8; row < kTileN; row += 4) {
            const int32_t key = n * kTileN + row;
            const bool exists = key < s.seqlen_k;
            const KeyPlace place = params.base.view.place_of(s, exists ? key : 0);
            const char* const from =
                data + tensor.offset(exists ? place.page : 0, exists ? place.slot : 0, t.head_kv) * 2;
#pragma unroll
            for (int panel = 0; panel < kPanels; ++panel) {
                const int column = panel * kPanelColumns + chunk * 8;
                const bool copied = exists && column < columns;
                ptx::cp_async_16_or_zeros(tile + panel * kPanelBytes + line_chunk(row, chunk),
                                          copied ? from + column * 2 : data, copied);
            }
        }
        ptx::cp_async_commit();
        if (pending != 0) {
            ptx::cp_async_wait<1>();
            hand_on(pending);
        }
        pending = ring.full_barrier();
    }
};

}  // namespace tilewise::cuda::sm90
