// Forward attention of one tile of query rows: q, k, v -> o, lse (or f32 partial results of one key range).
//
// The story. num_warps warps own 16 or 32 rows each: Q, S, P and O of a row never leave its warp. Tiles of K and V stream through num_stages
// buffers, filled by cp.async of all threads, num_stages - 1 tiles ahead. One block barrier a tile: it says that the tile has landed
// for all warps and that all are done with the buffer that is refilled next. Blocks that share a multiprocessor are not in step, so
// one's softmax runs under the other's products.
//
// 32 rows a warp because each B fragment then feeds two products: with 16, reading K and V from shared memory caps the tensor
// pipe at half its rate. Shared memory: traits.hpp. Registers a thread at d128, tile_n 64: O 128, S 64, Q 8, K or V 4, addresses.
#pragma once

#include "cuda/attend/epilogue.cuh"
#include "cuda/attend/kv_source.cuh"
#include "cuda/attend/query_rows.cuh"
#include "cuda/attend/score_tile.cuh"
#include "cuda/attend/softmax_tile.cuh"
#include "cuda/attend/visit.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/sm80/traits.hpp"
#include "cuda/tile/warp_product.cuh"

namespace tilewise::cuda::sm80 {

template <class Traits> struct Forward {
    static constexpr ForwardShape kShape = Traits::kShape;
    using Element = typename Traits::Element;
    template <int kRows, int kColumns> using Tile = typename tile::TileChoice<Traits::kSwizzled, kRows, kColumns>::Type;
    using QTile = Tile<Traits::kWarpRows, kShape.head_dim>;
    using OTile = Tile<Traits::kWarpRows, kShape.head_dim_v>;
    using KTile = Tile<kShape.tile_n, kShape.head_dim>;
    using VTile = Tile<kShape.tile_n, kShape.head_dim_v>;
    using Scores = float[Traits::kMBlocks][Traits::kNBlocks][4];

    float o[Traits::kMBlocks][Traits::kVBlocks][4];
    SoftmaxRows<Element, Traits::kMBlocks> rows;

    __device__ void clear() {
        rows.clear();
#pragma unroll
        for (int m = 0; m < Traits::kMBlocks; ++m)
#pragma unroll
            for (int v = 0; v < Traits::kVBlocks; ++v)
#pragma unroll
                for (int e = 0; e < 4; ++e) o[m][v][e] = 0.0f;
    }

    // S = Q K^T, raw. Addresses are those of a_lane and b_lane.
    __device__ static void multiply_keys(Scores& s, uint32_t q, uint32_t k) {
#pragma unroll
        for (int m = 0; m < Traits::kMBlocks; ++m)
#pragma unroll
            for (int n = 0; n < Traits::kNBlocks; ++n)
#pragma unroll
                for (int e = 0; e < 4; ++e) s[m][n][e] = 0.0f;
#pragma unroll
        for (int step = 0; step < kShape.head_dim / 16; ++step) {
            uint32_t a[Traits::kMBlocks][4];
#pragma unroll
            for (int m = 0; m < Traits::kMBlocks; ++m)
                ptx::ldmatrix_x4(a[m], QTile::moved(q, 2 * step) + m * 16 * QTile::kPitch);
            tile::multiply_step<Element>(s, a, tile::rows_of_n<KTile>(KTile::moved(k, 2 * step)));
        }
    }

    // O += P V.
    __device__ void multiply_values(const Scores& p, uint32_t v) {
#pragma unroll
        for (int step = 0; step < kShape.tile_n / 16; ++step) {
            uint32_t a[Traits::kMBlocks][4];
#pragma unroll
            for (int m = 0; m < Traits::kMBlocks; ++m) tile::pack_a<Element>(a[m], p[m], step);
            tile::multiply_step<Element>(o, a, tile::rows_of_k<VTile>(v + step * 16 * VTile::kPitch));
        }
    }

    __device__ void finish(const ForwardParams& params, const RowTile& t, const OTile& staged, int32_t first) {
        const bool partial = params.tiles.num_splits > 1;
        const LaneRow row = lane_row_of<Traits::kWarpRows>(t, first);
        float sink = negative_infinity();
        if (!partial && row.exists && params.view.score.sink.given()) sink = params.view.sink_of(row.head);
        float factor[2 * Traits::kMBlocks], lse[2 * Traits::kMBlocks];
#pragma unroll
        for (int r = 0; r < 2 * Traits::kMBlocks; ++r) {
            const float row_sink =
                __shfl_sync(0xffffffffu, sink, accumulator_row(r, static_cast<int>(threadIdx.x) % 32));
            const FinishedRow finished = finish_row(scaled_reference<Element>(rows.reference[r], params.score_scale),
                                                    quad_sum(rows.row_sum[r]) * kUnlift<Element>, row_sink,
                                                    params.view.score.dropout.keep_scale * kUnlift<Element>);
            factor[r] = finished.factor;
            lse[r] = finished.lse;
        }
        store_lse(params, t, row, to_lane_row<Traits::kMBlocks>(lse));
        if (partial) {
            store_partial(params, t, o, factor, first);
            return;
        }
        HeadTensor target = params.view.o;
        target.data = static_cast<uint16_t*>(target.data) + params.dims.first_column_v * target.dim_stride;
        __syncwarp();
        stage_rows<Element>(staged, o, factor);
        __syncwarp();
        store_rows(staged, target, row_bytes_of(target, t, row), params.dims.head_dim_v, params.dims.vector_o);
    }
};

// What a block computes and reads, in shared memory: needed before and after the main loop, and in it by slow paths only.
struct BlockContext {
    RowTile tile;
    KvSource k, v;
};
static_assert(sizeof(BlockContext) <= kBlockBytes);

// One operand's tiles in their stages. `full` barriers count one arrival a thread (its copies have landed), `empty` ones one a warp.
template <class Traits, class Tile> struct TileRing {
    static constexpr int kStages = Traits::kShape.num_stages;
    using Copy = TileCopy<Traits::kThreads, Tile>;
    const char* rows = nullptr;  // this thread's chunk of key 0
    uint32_t stages = 0;         // address of stage 0
    uint32_t barriers = 0;       // full[kStages], empty[kStages]

    __device__ static void init(uint32_t barriers) {
        for (int i = 0; i < kStages; ++i) {
            ptx::mbarrier_init(barriers + i * 8, Traits::kThreads);
            ptx::mbarrier_init(barriers + (kStages + i) * 8, Traits::kShape.num_warps * ptx::kArrivalsOfWarp);
        }
    }
    __device__ void wait_full(int stage, uint32_t phase) const { ptx::mbarrier_wait(barriers + stage * 8, phase); }
    // All lanes of the warp have read the tile.
    __device__ void release(int stage) const { ptx::mbarrier_arrive_warp(barriers + (kStages + stage) * 8); }
    // Waits until the stage is free, then copies a tile whose rows and columns all exist.
    __device__ __forceinline__ void fill_whole(int64_t row_bytes, int32_t n_tile, int stage, uint32_t phase) const {
        ptx::mbarrier_wait(barriers + (kStages + stage) * 8,
                           phase ^ 1u);  // of a fresh barrier, the phase before the first is complete
        Copy::copy(Copy::place(Tile{stages + stage * Tile::kBytes}), rows + n_tile * (Tile::kRows * row_bytes),
                   row_bytes);
        ptx::mbarrier_arrive_after_copies(barriers + stage * 8);
    }
    __device__ void fill_any(const KvSource& source, int32_t n_tile, int stage, uint32_t phase) const {
        ptx::mbarrier_wait(barriers + (kStages + stage) * 8, phase ^ 1u);
        load_any_tile<Traits::kThreads>(Tile{stages + stage * Tile::kBytes}, source, n_tile * Tile::kRows);
        if (source.vector)
            ptx::mbarrier_arrive_after_copies(barriers + stage * 8);
        else
            ptx::mbarrier_arrive(barriers + stage * 8);
    }
};

template <class Traits> __device__ __forceinline__ void forward(const ForwardParams& params) {
    extern __shared__ __align__(128) unsigned char shared[];
    using F = Forward<Traits>;
    constexpr int kStages = Traits::kShape.num_stages, kTileN = Traits::kShape.tile_n;
    BlockContext& block = *reinterpret_cast<BlockContext*>(shared + Traits::kBlockOffset);
    auto* const intervals = reinterpret_cast<Interval*>(shared + Traits::kRowsOffset);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int32_t first_row = warp * Traits::kWarpRows;
    const uint32_t base = ptx::shared_address(shared);
    const typename F::QTile q = {base + warp * Traits::kWarpRows * Traits::row_bytes(Traits::kWideColumns)};
    const HeadDims& dims = params.dims;
    TileRing<Traits, typename F::KTile> k_ring = {nullptr, base + Traits::kKOffset, base + Traits::kBarrierOffset};
    TileRing<Traits, typename F::VTile> v_ring = {nullptr, base + Traits::kVOffset,
                                                  base + Traits::kBarrierOffset + 16 * kStages};
    VisitRange range;
    KeyTiles tiles;
    const bool simple = dims.vector_k && dims.vector_v && params.view.pages.data == nullptr &&
                        dims.head_dim == Traits::kShape.head_dim && dims.head_dim_v == Traits::kShape.head_dim_v;
    auto fill = [&](bool whole, int32_t n_tile, int stage, uint32_t phase) {
        if (n_tile < tiles.first) return;
        if (whole) {
            k_ring.fill_whole(params.view.k.row_stride * 2, n_tile, stage, phase);
            v_ring.fill_whole(params.view.v.row_stride * 2, n_tile, stage, phase);
        } else {
            k_ring.fill_any(block.k, n_tile, stage, phase);
            v_ring.fill_any(block.v, n_tile, stage, phase);
        }
    };
    {
        const RowTile t = row_tile_of(params.tiles, params.view, blockIdx.x);
        if (t.num_rows <= 0) return;
        load_rows(q, params.view.q, row_bytes_of(params.view.q, t, lane_row_of<Traits::kWarpRows>(t, first_row)),
                  dims.head_dim, dims.vector_q);
        ptx::cp_async_commit();
        const IntervalMask mask = params.view.mask_of(t.batch, t.sequence);
        tiles = key_tiles_of<kTileN>(block_visit(params.view, mask, t, intervals), t.split, params.tiles.num_splits);
        const KvSource k = kv_source_of(params.view, params.view.k, t, {0, dims.head_dim, dims.vector_k});
        const KvSource v =
            kv_source_of(params.view, params.view.v, t, {dims.first_column_v, dims.head_dim_v, dims.vector_v});
        k_ring.rows = decltype(k_ring)::Copy::place(k.rows, k.row_bytes);
        v_ring.rows = decltype(v_ring)::Copy::place(v.rows, v.row_bytes);
        if (threadIdx.x == 0) {
            block = {t, k, v};
            k_ring.init(k_ring.barriers);
            v_ring.init(v_ring.barriers);
        }
        __syncthreads();
        fill(simple && tiles.last * kTileN <= t.sequence.seqlen_k, tiles.last - 1, 0,
             0);  // only the last tile can lack rows
        range = find_visit<Traits::kWarpRows>(params.view, mask, t, intervals);
    }

    F state;
    state.clear();
    const uint32_t q_lane = tile::a_lane(q, lane);
    const uint32_t k_lane = tile::b_lane(typename F::KTile{k_ring.stages}, lane),
                   v_lane = tile::bt_lane(typename F::VTile{v_ring.stages}, lane);
    int stage = 0;
    uint32_t phase = 0;
    ptx::cp_async_wait<0>();  // Q; the first tile is waited for right after anyway
    __syncwarp();
    // Tiles go from last to first: those that need masking come early.
#pragma unroll 1
    for (int32_t n_tile = tiles.last - 1; n_tile >= tiles.first; --n_tile) {
        const int32_t key = n_tile * kTileN;
        const bool visited = key < range.visit.end && key + kTileN > range.visit.begin;
        typename F::Scores s;
        if (visited) {
            k_ring.wait_full(stage, phase);
            F::multiply_keys(s, q_lane, k_lane + stage * Traits::kKBytes);
        }
        k_ring.release(stage);
        const int next_stage = stage == kStages - 1 ? 0 : stage + 1;
        const uint32_t next_phase = next_stage == 0 ? phase ^ 1u : phase;
        fill(simple, n_tile - 1, next_stage, next_phase);
        if (visited) {
            const TileOrigin origin = {first_row, key};
            if constexpr (Traits::kHasModifiers) modify_scores(s, params.view, block.tile, origin);
            if (key < range.interior.begin || key + kTileN > range.interior.end) mask_outside(s, intervals, origin);
            v_ring.wait_full(stage, phase);  // before the exponentials: they then fill the gaps between the products
            softmax_step(state.rows, s, state.o, params.score_scale);
            if constexpr (Traits::kHasModifiers)
                if (params.view.score.dropout.threshold > 0) drop_probabilities(s, params.view, block.tile, origin);
            state.multiply_values(s, v_lane + stage * Traits::kVBytes);
        }
        v_ring.release(stage);
        stage = next_stage;
        phase = next_phase;
    }
    state.finish(params, block.tile, {q.base}, first_row);
}

}  // namespace tilewise::cuda::sm80
