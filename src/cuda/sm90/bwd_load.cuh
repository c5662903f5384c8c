// One warp's loads of whole tiles as boxes, with zeros in rows that a sequence does not have.
#pragma once

#include "cuda/ptx/bulk.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/sm90/bwd_params.hpp"
#include "cuda/sm90/tile.cuh"

namespace tilewise::cuda::sm90 {

struct TileLoad {
    const CUtensorMap* map;
    ptx::BoxPlace place;
    uint32_t to, full;
    int rows;              // of the tile
    int32_t num_rows;      // of them that the sequence has
    bool has_rows_behind;  // of the tensor, behind the sequence
    ptx::CacheHint hint;
    const float* stats = nullptr;  // one a row; null: none
    uint32_t stats_to = 0;
};

struct TileLoader {
    const uint32_t landing;  // a barrier for tiles that are not handed on before rows were cleared
    uint32_t landings = 0;

    __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

    // By the whole warp; the barrier takes kArrivalsOfWarp arrivals.
    template <int kPanels> __device__ __forceinline__ void load(const TileLoad& x) {
        const bool clears = x.num_rows < x.rows && x.has_rows_behind;
        const uint32_t barrier = clears ? landing : x.full;
        if (lane() == 0) {
            const uint32_t stat_bytes = x.stats != nullptr ? x.rows * 4 : 0;
            ptx::mbarrier_expect_bytes(barrier, kPanels * x.rows * kLineBytes + stat_bytes);
            ptx::BoxPlace place = x.place;
#pragma unroll
            for (int panel = 0; panel < kPanels; ++panel, place.column += kPanelColumns)
                ptx::copy_box(x.to + panel * x.rows * kLineBytes, x.map, place, barrier, x.hint);
            if (x.stats != nullptr) ptx::copy_bytes(x.stats_to, x.stats, stat_bytes, barrier);
        }
        __syncwarp();
        if (!clears) {
            if (ptx::kArrivalsOfWarp > 1 && lane() > 0) ptx::mbarrier_arrive(barrier);
            return;
        }
        ptx::mbarrier_wait(barrier, landings++ & 1u);
        clear_rows<kPanels>(x.to, x.rows, x.num_rows);
        ptx::fence_async_proxy();
        ptx::mbarrier_arrive_warp(x.full);
    }

private:
    // Rows of a tile from `first` on become zeros: what follows a sequence may be anything, and 0 * NaN is no 0.
    template <int kPanels> __device__ __forceinline__ static void clear_rows(uint32_t tile, int rows, int first) {
        constexpr int kChunks = kLineBytes / 16;
#pragma unroll 1
        for (int i = max(first, 0) * kChunks + lane(); i < rows * kChunks; i += 32)
#pragma unroll
            for (int panel = 0; panel < kPanels; ++panel)
                ptx::store_shared_16(tile + panel * rows * kLineBytes + i * 16, uint4{});
    }
};

}  // namespace tilewise::cuda::sm90
