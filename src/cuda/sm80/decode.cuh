// Forward attention for few query rows against many keys (decoding): q, k, v -> o, lse, or f32 partial results of one key range.
//
// The story. Reading K and V is all the work, so the kernel is a stream from memory with a little arithmetic beside it. A block is 16
// packed query rows (the heads of a GQA group, and queries), one key head and one range of keys. Each warp takes every num_warps-th tile
// of 16 or 32 keys into stages of its own, filled by its own cp.async, with Q and O in its registers: no warp waits for another until the
// keys are through, and nearly all of the stages are on their way at any time. Then decode_merge.cuh makes one result of the warps', and
// of the ranges'.
//
// In flight a multiprocessor: blocks x warps x stages x tiles of K and V: at d128 3 x 4 x 2 x 8.5 KB = 204 KB of shared memory. The tensor
// pipe is a fifth busy at best, so half-empty fragments (fewer than 16 rows) cost nothing.
#pragma once

#include "cuda/attend/key_rows.cuh"
#include "cuda/attend/query_rows.cuh"
#include "cuda/attend/score_tile.cuh"
#include "cuda/sm80/decode_merge.cuh"
#include "cuda/sm80/decode_warp.cuh"

namespace tilewise::cuda::sm80 {

// The keys that the tile's rows see, as each warp works it out for itself.
struct VisibleKeys {
    Interval visit;     // some row sees these
    Interval interior;  // every row sees these
    Interval mine;      // row number lane; empty where there is none
};
__device__ inline VisibleKeys visible_keys(const AttentionView& view, const RowTile& t) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int32_t farthest = t.sequence.seqlen_k;
    VisibleKeys keys = {{farthest, 0}, {0, farthest}, {}};
    if (lane < t.num_rows) {
        const Interval mine = view.keys_of(view.mask_of(t.batch, t.sequence), t.batch, t.sequence, t.query_of(lane));
        keys.mine = keys.interior = mine;
        if (!is_empty(mine)) keys.visit = mine;
    }
    constexpr uint32_t kAll = 0xffffffffu;
    keys.visit = {__reduce_min_sync(kAll, keys.visit.begin), __reduce_max_sync(kAll, keys.visit.end)};
    keys.interior = {__reduce_max_sync(kAll, keys.interior.begin), __reduce_min_sync(kAll, keys.interior.end)};
    return keys;
}

// A block's keys: whole units of `kUnit`, counted from key 0 so that a key's warp follows from the key alone.
struct SplitRange {
    int32_t begin = 0;
    int32_t end = 0;
    int32_t used = 1;  // splits that have keys; where a combine follows, all
};
template <int kUnit>
__device__ inline SplitRange split_range_of(const ForwardParams& params, Interval visit, int32_t split) {
    SplitRange range;
    const int32_t num_splits = params.tiles.num_splits;
    const bool merges_here = params.partial.counters != nullptr;
    if (!merges_here) range.used = num_splits;
    if (is_empty(visit)) return range;
    const int32_t first = visit.begin / kUnit, units = (visit.end + kUnit - 1) / kUnit - first;
    int32_t share = (units + num_splits - 1) / num_splits;
    if (merges_here) {
        share = max(share, (params.partial.min_split_keys + kUnit - 1) / kUnit);
        range.used = (units + share - 1) / share;
    }
    range.begin = (first + min(split * share, units)) * kUnit;
    range.end = min((first + min((split + 1) * share, units)) * kUnit, visit.end);
    return range;
}

// One warp's tiles of K and V in their stages.
template <class Traits> struct KeyStream {
    static constexpr int kTileN = Traits::kShape.tile_n;
    using KTile = typename DecodeWarp<Traits>::KTile;
    using VTile = typename DecodeWarp<Traits>::VTile;
    const ForwardParams& params;
    KeyRows rows;
    WarpTileCopy<KTile> k;
    WarpTileCopy<VTile> v;
    uint32_t stages = 0;  // this warp's: of K, then of V
    uint64_t policy = 0;
    int32_t end = 0;      // of the block's keys
    bool simple = false;  // all columns exist, 16-byte accesses
    KeyRow next = {};     // of this lane's key in the tile that is filled next

    __device__ KeyRow find(int32_t key) const {
        return rows.find(params.view.pages, key + static_cast<int32_t>(threadIdx.x) % kTileN);
    }
    __device__ bool is_whole(int32_t key) const {
        return simple && key >= rows.exist.begin && key + kTileN <= rows.exist.end;
    }
    __device__ bool exists(int32_t key) const {
        key += static_cast<int32_t>(threadIdx.x) % kTileN;
        return key >= rows.exist.begin && key < rows.exist.end;
    }
    // The tile at `key` into a stage, one group of copies whether there is such a tile or not.
    __device__ __forceinline__ void fill_k(int32_t key, int stage) const {
        if (key < end) {
            if (is_whole(key))
                k.copy_whole(params.view.k, next, stage * Traits::kKBytes, policy);
            else
                k.copy_any(params.view.k, next, exists(key), stage * Traits::kKBytes,
                           {0, params.dims.head_dim, params.dims.vector_k});
        }
        ptx::cp_async_commit();
    }
    __device__ __forceinline__ void fill_v(int32_t key, int stage) const {
        if (key < end) {
            if (is_whole(key))
                v.copy_whole(params.view.v, next, stage * Traits::kVBytes, policy);
            else
                v.copy_any(params.view.v, next, exists(key), stage * Traits::kVBytes,
                           {params.dims.first_column_v, params.dims.head_dim_v, params.dims.vector_v});
        }
        ptx::cp_async_commit();
    }
    // All stages, from the warp's first tile on. A page is looked up one tile ahead, so its latency is paid once.
    __device__ __forceinline__ void start(int32_t key) {
        next = find(key);
#pragma unroll 1
        for (int i = 0; i < Traits::kShape.num_stages; ++i) {
            const KeyRow after = find(key + Traits::kUnit);
            fill_k(key, i);
            fill_v(key, i);
            next = after;
            key += Traits::kUnit;
        }
    }
};
template <class Traits>
__device__ inline KeyStream<Traits> key_stream_of(const ForwardParams& params, const RowTile& t, Interval visit,
                                                  int32_t end, uint32_t stages) {
    const AttentionView& view = params.view;
    const HeadDims& dims = params.dims;
    KeyStream<Traits> stream = {params, key_rows_of(view, t.sequence, visit), {}, {}};
    stream.k = decltype(stream.k)::of(first_row_of(view, view.k, t, 0), view.k.dim_stride, stages);
    stream.v = decltype(stream.v)::of(first_row_of(view, view.v, t, dims.first_column_v), view.v.dim_stride,
                                      stages + Traits::kShape.num_stages * Traits::kKBytes);
    // Several row tiles read the same keys at about the same time.
    const bool once = params.tiles.num_tiles == 1;
    stream.stages = stages;
    stream.policy = once ? ptx::policy_evict_first() : ptx::policy_evict_normal();
    stream.end = end;
    stream.simple = dims.vector_k && dims.vector_v && dims.head_dim == Traits::kShape.head_dim &&
                    dims.head_dim_v == Traits::kShape.head_dim_v;
    return stream;
}

__device__ inline bool has_modifiers(const AttentionView& view) {
    return view.score.softcap > 0.0f || view.score.alibi_slopes.given() || view.score.bias.given() ||
           view.visibility.mask.given();
}

// What a block needs now and then in its main loop, and after it: in shared memory.
struct DecodeBlock {
    RowTile tile;
    uint64_t* counter = nullptr;  // null: nothing to merge here
    int32_t num_parts = 1;
    bool is_last = false;
    Interval rows[kDecodeTileM];  // keys that each row sees
};
static_assert(sizeof(DecodeBlock) <= kBlockBytes);

// The block's keys through one warp. On return no copy is on its way.
template <class Traits>
__device__ __forceinline__ void stream_keys(DecodeWarp<Traits>& state, KeyStream<Traits>& stream, Interval interior,
                                            const DecodeBlock& block, int32_t key, uint32_t q_lane) {
    constexpr int kStages = Traits::kShape.num_stages, kTileN = Traits::kShape.tile_n, kUnit = Traits::kUnit;
    const ForwardParams& params = stream.params;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t k_lane = tile::b_lane(typename DecodeWarp<Traits>::KTile{stream.stages}, lane);
    const uint32_t v_lane =
        tile::bt_lane(typename DecodeWarp<Traits>::VTile{stream.stages + kStages * Traits::kKBytes}, lane);
    bool modified = false;
    if constexpr (Traits::kHasModifiers) modified = has_modifiers(params.view);
    int stage = 0;
#pragma unroll 1
    for (; key < stream.end; key += kUnit) {
        typename DecodeWarp<Traits>::Scores s;
        // Groups newer than this tile's K: its V, and K and V of the stages - 1 tiles after it. The same number for V below.
        ptx::cp_async_wait<2 * kStages - 1>();
        __syncwarp();
        state.multiply_keys(s, q_lane, k_lane + stage * Traits::kKBytes);
        __syncwarp();
        stream.fill_k(key + kStages * kUnit, stage);
        if constexpr (Traits::kHasModifiers)
            if (modified) modify_scores(s, params.view, block.tile, {0, key});
        if (key < interior.begin || key + kTileN > interior.end) mask_outside(s, block.rows, {0, key});
        softmax_step(state.rows, s, state.o, params.score_scale);
        ptx::cp_async_wait<2 * kStages - 1>();
        __syncwarp();
        state.multiply_values(s, v_lane + stage * Traits::kVBytes);
        __syncwarp();
        stream.fill_v(key + kStages * kUnit, stage);
        stream.next = stream.find(key + (kStages + 1) * kUnit);
        stage = stage == kStages - 1 ? 0 : stage + 1;
    }
    ptx::cp_async_wait<0>();
}

// params.score_scale is softmax_scale / ln 2, or 1 / ln 2 where has_modifiers; there is no dropout here.
template <class Traits> __device__ __forceinline__ void decode(const ForwardParams& params) {
    extern __shared__ __align__(128) unsigned char shared[];
    DecodeBlock& block = *reinterpret_cast<DecodeBlock*>(shared + Traits::kBlockOffset);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t base = ptx::shared_address(shared);
    const typename DecodeWarp<Traits>::QTile q = {base};
    const RowTile t = row_tile_of(params.tiles, params.view, blockIdx.x);
    if (t.num_rows <= 0) return;
    const VisibleKeys keys = visible_keys(params.view, t);
    const SplitRange split = split_range_of<Traits::kUnit>(params, keys.visit, t.split);
    if (t.split >= split.used) return;
    if (warp == 0) {
        const LaneRow row = lane_row_of<kDecodeTileM>(t, 0);
        load_rows(q, params.view.q, row_bytes_of(params.view.q, t, row), params.dims.head_dim, params.dims.vector_q);
    }
    ptx::cp_async_commit();
    KeyStream<Traits> stream = key_stream_of<Traits>(params, t, keys.visit, split.end,
                                                     base + Traits::kRingsOffset + warp * Traits::kWarpBytes);
    const int32_t first_key = split.begin + warp * Traits::kShape.tile_n;
    stream.start(first_key);
    if (threadIdx.x < kDecodeTileM) block.rows[threadIdx.x] = keys.mine;
    if (threadIdx.x == 0) {
        block.tile = t;
        block.num_parts = split.used;
        block.counter = counter_of(params, split.used);
        if (block.counter != nullptr) prepare_counter(block.counter);  // hidden by the first keys
    }
    ptx::cp_async_wait<2 * Traits::kShape.num_stages>();
    __syncthreads();  // Q

    DecodeWarp<Traits> state;
    const uint32_t q_lane = tile::a_lane(q, lane);
    state.start(q_lane);
    stream_keys(state, stream, keys.interior, block, first_key, q_lane);
    __syncwarp();
    const DecodeMerge<Traits> merge = {params, block.tile, shared};
    merge.merge_warps(state.o, state.rows, block.num_parts > 1);
    if (block.counter != nullptr && arrive_last(block.counter, block.num_parts, block.is_last))
        merge.merge_parts(block.num_parts);
}

}  // namespace tilewise::cuda::sm80
