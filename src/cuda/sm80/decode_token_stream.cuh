// What a block of the one-token decode computes, and one warp's stream of tiles of K and V through its stages of shared memory.
#pragma once

#include "cuda/ptx/cache_policy.cuh"
#include "cuda/sm80/decode_token_params.hpp"
#include "cuda/sm80/decode_warp.cuh"

namespace tilewise::cuda::sm80 {

struct TokenTile {
    uint32_t tile = 0;  // over sequences and heads
    int32_t row = 0;    // of q and o
    int32_t head_kv = 0;
    int32_t first_head = 0;
    int32_t num_rows = 0;  // query heads; 0: the sequence has no query
    int32_t split = 0;
    int32_t num_parts = 1;  // splits that have keys; in a cluster without a meaning
    int32_t k_batch = 0;
    int32_t first_key = 0;  // row of key 0
    Interval seen;          // keys
    Interval mine;          // of these, this block's: whole units
};

// Rows and keys of a sequence, as resolve_sequence finds them, in 32 bits. Returns the number of keys.
__device__ __forceinline__ int32_t find_sequence(TokenTile& t, const TokenLengths& l, int32_t batch) {
    if (l.cu_seqlens_q.given()) {
        t.row = l.cu_seqlens_q[batch];
        if (l.cu_seqlens_q[batch + 1] <= t.row) t.num_rows = 0;
    }
    if (l.seqused_q.given() && l.seqused_q[batch] <= 0) t.num_rows = 0;
    int32_t end = l.seqlen_k;
    if (l.cu_seqlens_k.given()) {
        t.first_key = l.cu_seqlens_k[batch];
        end = l.cu_seqlens_k[batch + 1] - t.first_key;
    } else if (l.cache_batch_idx.given()) {
        t.k_batch = max(min(l.cache_batch_idx[batch], l.last_cache_row), 0);
    }
    if (l.seqused_k.given()) end = min(l.seqused_k[batch], end);
    if (l.leftpad_k.given()) {
        const int32_t leftpad = max(l.leftpad_k[batch], 0);
        t.first_key += leftpad;
        end = max(end, 0) - leftpad;
    }
    return max(end, 0);
}

// The block's share of the keys. Units count from key 0, so that a key's warp follows from the key alone.
template <int kUnit> __device__ __forceinline__ void split_keys(TokenTile& t, const TokenWork& w) {
    const int32_t first = t.seen.begin / kUnit, units = (t.seen.end + kUnit - 1) / kUnit - first;
    const int32_t num_splits = static_cast<int32_t>(w.splits.value);
    int32_t share = static_cast<int32_t>(w.splits.divide(static_cast<uint32_t>(units)));
    int32_t more = units - share * num_splits;  // the first splits get one unit more
    t.num_parts = share > 0 ? num_splits : max(more, 1);
    const int32_t shortest = static_cast<int32_t>(w.min_split.value);
    if (share + (more > 0) < shortest) {
        share = shortest;
        more = 0;
        t.num_parts = max(static_cast<int32_t>(w.min_split.divide(static_cast<uint32_t>(units + shortest - 1))), 1);
    }
    const int32_t begin = min(t.split * share + min(t.split, more), units);
    const int32_t end = min(begin + share + (t.split < more), units);
    t.mine = {(first + begin) * kUnit, min((first + end) * kUnit, t.seen.end)};
}

template <int kUnit> __device__ __forceinline__ TokenTile token_tile_of(const TokenParams& p) {
    TokenTile t;
    const TokenWork& w = p.work;
    const uint32_t quotient = w.blocks.divide(blockIdx.x), rest = blockIdx.x - quotient * w.blocks.value;
    t.tile = w.clustered ? quotient : rest;
    t.split = static_cast<int32_t>(w.clustered ? rest : quotient);
    const uint32_t key_head = w.tiles.divide(t.tile);
    const int32_t first_row = static_cast<int32_t>(t.tile - key_head * w.tiles.value) * kDecodeTileM;
    const int32_t batch = static_cast<int32_t>(w.heads_kv.divide(key_head));
    t.head_kv = static_cast<int32_t>(key_head) - batch * static_cast<int32_t>(w.heads_kv.value);
    t.first_head = t.head_kv * w.gqa_ratio + first_row;
    t.num_rows = min(w.gqa_ratio - first_row, kDecodeTileM);
    t.row = t.k_batch = batch;
    t.seen.end = p.lengths.vary ? find_sequence(t, p.lengths, batch) : p.lengths.seqlen_k;
    if (p.lengths.window_left >= 0) t.seen.begin = max(t.seen.end - 1 - p.lengths.window_left, 0);
    split_keys<kUnit>(t, w);
    return t;
}

template <class Traits> struct TokenStream {
    static constexpr int kTileN = Traits::kShape.tile_n;
    using KTile = typename DecodeWarp<Traits>::KTile;
    using VTile = typename DecodeWarp<Traits>::VTile;
    template <class Tile> struct Copy {
        static constexpr int kChunks = Tile::kColumns / 8;
        static constexpr int kLanes = kChunks % 8 == 0 ? 8 : 4;  // on a row
        static constexpr int kRowsOfPass = 32 / kLanes;
    };
    const TokenParams& p;
    const char* k = nullptr;  // this lane's chunk of row 0
    const char* v = nullptr;
    uint32_t k_to = 0, v_to = 0;  // this lane's place in the first stage
    uint64_t policy = 0;
    const int32_t* pages = nullptr;  // of this sequence; null: dense
    TokenTile t;
    uint32_t row = 0;       // of this lane's key in the tile that is filled next
    uint32_t existing = 0;  // a bit a lane: that key exists

    // A step before the copy, so that a page's latency is hidden. Keys that no row sees are neither read nor looked up.
    __device__ __forceinline__ void find(int32_t key) {
        key += static_cast<int32_t>(threadIdx.x) % kTileN;
        const bool exists = key >= t.seen.begin && key < t.seen.end;
        existing = __ballot_sync(0xffffffffu, exists);
        row = 0;
        if (!exists) return;
        row = static_cast<uint32_t>(t.first_key + key);
        if (pages == nullptr) return;
        const uint32_t page = p.pages.page_size.divide(row), slot = row - page * p.pages.page_size.value;
        row = page_within(pages[page * p.pages.page_stride], p.pages.last_page) * p.pages.page_rows + slot;
    }
    template <class Tile>
    __device__ __forceinline__ void fill(const TokenKeys& keys, const char* from, uint32_t to) const {
        using C = Copy<Tile>;
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
        for (int first = 0; first < kTileN; first += C::kRowsOfPass) {
            const uint32_t r = __shfl_sync(0xffffffffu, row, first + lane / C::kLanes);
            const bool exists = (existing >> (first + lane / C::kLanes) & 1) != 0;
            const char* const at = from + static_cast<uint64_t>(r) * keys.row_bytes;
#pragma unroll
            for (int j = 0; j < C::kChunks / C::kLanes; ++j)
                ptx::cp_async_16_or_zeros(to + first * Tile::kPitch + j * C::kLanes * 16, at + j * C::kLanes * 16,
                                          exists && (lane % C::kLanes + j * C::kLanes) * 8 < keys.num_columns, policy);
        }
    }
    // The tile at `key` into a stage, one group of copies whether there is such a tile or not.
    __device__ __forceinline__ void fill_k(int32_t key, int stage) const {
        if (key < t.mine.end) fill<KTile>(p.k, k, k_to + stage * Traits::kKBytes);
        ptx::cp_async_commit();
    }
    __device__ __forceinline__ void fill_v(int32_t key, int stage) const {
        if (key < t.mine.end) fill<VTile>(p.v, v, v_to + stage * Traits::kVBytes);
        ptx::cp_async_commit();
    }
    // All stages, from the warp's first tile on.
    __device__ __forceinline__ void start(uint32_t stages, int32_t key) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        constexpr int kKLanes = Copy<KTile>::kLanes, kVLanes = Copy<VTile>::kLanes;
        k = p.k.data + t.k_batch * p.k.batch_bytes + t.head_kv * p.k.head_bytes + lane % kKLanes * 16;
        v = p.v.data + t.k_batch * p.v.batch_bytes + t.head_kv * p.v.head_bytes + lane % kVLanes * 16;
        k_to = KTile{stages}.at(lane / kKLanes, lane % kKLanes * 8);
        v_to = VTile{stages + Traits::kShape.num_stages * Traits::kKBytes}.at(lane / kVLanes, lane % kVLanes * 8);
        policy = p.work.once ? ptx::policy_evict_first() : ptx::policy_evict_normal();
        if (p.pages.data != nullptr) pages = p.pages.data + t.k_batch * p.pages.row_stride;
#pragma unroll 1
        for (int i = 0; i < Traits::kShape.num_stages; ++i, key += Traits::kUnit) {
            find(key);
            fill_k(key, i);
            fill_v(key, i);
        }
        find(key);
    }
};

}  // namespace tilewise::cuda::sm80
