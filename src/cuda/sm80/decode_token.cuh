// Decode of one token a sequence: the common call, with as little as possible before the first key is asked for and after the last one came.
//
// The story is that of decode.cuh: a block is up to 16 query heads of a key head and one range of keys, a warp streams every num_warps-th
// tile through stages of its own. What differs is what a block does not do. It finds its place by four multiplications (no 64-bit division,
// no search), asks for keys before it asks for Q, keeps nothing but barriers' worth of state in shared memory, and merges by one pass over
// the columns. Scores are only scaled; all rows of a tile see the same keys, one interval; all accesses are of 16 bytes.
//
// Shared memory: Q; each warp's stages of K, then of V (after the main loop its f32 O); a state a row and warp; a word; in a cluster what
// decode_token_merge.cuh keeps there. A cluster's barrier: `rank` expects the bytes of its share of columns, every block of the cluster
// stores them.
#pragma once

#include "cuda/sm80/decode_counter.cuh"
#include "cuda/sm80/decode_token_merge.cuh"

namespace tilewise::cuda::sm80 {

// Scores outside of `seen` become -inf.
template <int kNBlocks>
__device__ __forceinline__ void mask_rows_outside(float (&s)[1][kNBlocks][4], Interval seen, int32_t key) {
    const int32_t begin = seen.begin - key - static_cast<int32_t>(threadIdx.x) % 4 * 2;
    const uint32_t length = static_cast<uint32_t>(seen.end - seen.begin);
#pragma unroll
    for (int n = 0; n < kNBlocks; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
            if (static_cast<uint32_t>(n * 8 + e - begin) >= length) s[0][n][e] = s[0][n][2 + e] = negative_infinity();
}

// The block's keys through one warp, from `key` on. On return no copy is on its way.
template <class Traits>
__device__ __forceinline__ void stream_keys(DecodeWarp<Traits>& state, TokenStream<Traits>& stream, uint32_t stages,
                                            int32_t key, uint32_t q_lane) {
    constexpr int kStages = Traits::kShape.num_stages, kTileN = Traits::kShape.tile_n, kUnit = Traits::kUnit;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t k_lane = tile::b_lane(typename DecodeWarp<Traits>::KTile{stages}, lane);
    const uint32_t v_lane = tile::bt_lane(typename DecodeWarp<Traits>::VTile{stages + kStages * Traits::kKBytes}, lane);
    int stage = 0;
#pragma unroll 1
    for (; key < stream.t.mine.end; key += kUnit) {
        typename DecodeWarp<Traits>::Scores s;
        // Groups newer than this tile's K: its V, and K and V of the stages - 1 tiles after it. The same number for V below.
        ptx::cp_async_wait<2 * kStages - 1>();
        __syncwarp();
        state.multiply_keys(s, q_lane, k_lane + stage * Traits::kKBytes);
        __syncwarp();
        stream.fill_k(key + kStages * kUnit, stage);
        if (key < stream.t.seen.begin || key + kTileN > stream.t.seen.end) mask_rows_outside(s, stream.t.seen, key);
        softmax_step(state.rows, s, state.o, stream.p.score_scale);
        ptx::cp_async_wait<2 * kStages - 1>();
        __syncwarp();
        state.multiply_values(s, v_lane + stage * Traits::kVBytes);
        __syncwarp();
        stream.fill_v(key + kStages * kUnit, stage);
        stream.find(key + (kStages + 1) * kUnit);
        stage = stage == kStages - 1 ? 0 : stage + 1;
    }
    ptx::cp_async_wait<0>();
}

// Q into shared memory, zeros where there is no head or no column. All loads first: they wait beside each other, and beside the keys.
template <class Traits>
__device__ __forceinline__ void load_token_q(const TokenParams& p, const TokenTile& t, uint32_t base) {
    constexpr int kChunks = Traits::kShape.head_dim / 8;
    constexpr int kRounds = (kDecodeTileM * kChunks + Traits::kThreads - 1) / Traits::kThreads;
    const typename DecodeWarp<Traits>::QTile tile = {base};
    const char* const q = p.rows.q + t.row * p.rows.q_row_bytes + t.first_head * p.rows.q_head_bytes;
    uint4 x[kRounds];
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
        const int i = static_cast<int>(threadIdx.x) + round * Traits::kThreads, row = i / kChunks, chunk = i % kChunks;
        x[round] = {};
        if (row < t.num_rows && chunk * 8 < p.k.num_columns)
            x[round] = __ldg(reinterpret_cast<const uint4*>(q + row * p.rows.q_head_bytes + chunk * 16));
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
        const int i = static_cast<int>(threadIdx.x) + round * Traits::kThreads, row = i / kChunks, chunk = i % kChunks;
        if (row < kDecodeTileM) ptx::store_shared_16(tile.at(row, chunk * 8), x[round]);
    }
}

// params.score_scale is softmax_scale / ln 2.
template <class Traits> __device__ __forceinline__ void decode(const TokenParams& p) {
    extern __shared__ __align__(128) unsigned char shared[];
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t base = ptx::shared_address(shared);
    const TokenTile t = token_tile_of<Traits::kUnit>(p);
    if (t.num_rows <= 0) return;  // all blocks of a tile, so all of a cluster
    const bool clustered = ptx::kHasClusters && p.work.clustered;
    if (!clustered && t.split >= t.num_parts) return;
    const int32_t first_key = t.mine.begin + warp * Traits::kShape.tile_n;
    const uint32_t stages = base + Traits::kRingsOffset + warp * Traits::kWarpBytes;
    TokenStream<Traits> stream{p};
    stream.t = t;
    stream.start(stages, first_key);

    const TokenCluster<Traits> cluster = {p, base, p.work.splits.value, static_cast<uint32_t>(t.split)};
    uint64_t* const counter = !clustered && t.num_parts > 1 ? p.parts.counters + t.tile : nullptr;
    if (clustered)
        cluster.open(t.num_rows);
    else if (counter != nullptr && threadIdx.x == 0)
        prepare_counter(counter);
    load_token_q<Traits>(p, t, base);
    __syncthreads();

    DecodeWarp<Traits> state;
    const uint32_t q_lane = tile::a_lane(typename DecodeWarp<Traits>::QTile{base}, lane);
    state.start(q_lane);
    stream_keys(state, stream, stages, first_key, q_lane);
    __syncwarp();
    const TokenEnd<Traits> end = {p, t, shared};
    end.publish(state);
    __syncthreads();
    if (clustered) {
        cluster.merge(end);
        return;
    }
    constexpr int kColumns = TokenEnd<Traits>::kColumns;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < t.num_rows * kColumns; i += Traits::kThreads) {
        const int row = i / kColumns, column = i % kColumns * 4;
        float x[4] = {};
        const RowState all = end.gather(row, column, x);
        if (counter != nullptr)
            end.store_part(row, column, x, all);
        else
            end.finish(row, column, x, all);
    }
    if (counter == nullptr) return;
    bool& answer = *reinterpret_cast<bool*>(shared + Traits::kFactorsOffset);
    if (arrive_last(counter, t.num_parts, answer)) end.merge_parts();
}

}  // namespace tilewise::cuda::sm80
