// Tile work of one warp of the backward. Scores are transposed, S^T = K Q^T: element (m, n, e) of a thread's m16n8 accumulators is key
// 16 m + 8 (e / 2) + lane / 4 of the warp's 32, query 8 n + 2 (lane % 4) + e % 2 of its kQueries. So P^T and dS^T are, as they come, A
// operands of dV = P^T dO and dK = dS^T Q, and 32 keys let every B fragment feed two products.
#pragma once

#include "cuda/attend/modified_pair.cuh"
#include "cuda/ptx/pairs.cuh"
#include "cuda/sm80/bwd_load.cuh"
#include "cuda/tile/warp_product.cuh"

namespace tilewise::cuda::sm80 {

template <class Traits> struct BackwardTiles {
    static constexpr BackwardShape kShape = Traits::kShape;
    using K = tile::SwizzledTile<kShape.tile_n, kShape.head_dim>;
    using V = tile::SwizzledTile<kShape.tile_n, kShape.head_dim_v>;
    using Q = tile::SwizzledTile<kShape.tile_m, kShape.head_dim>;
    using O = tile::SwizzledTile<kShape.tile_m, kShape.head_dim_v>;
    using Ds = tile::SwizzledTile<kShape.tile_n, kShape.tile_m>;  // [key][query]
};

// B operands as multiply reads them: load(fragment, n, step) gives two n8 blocks of a k16 step. Rows of the tile are n:
template <class Tile> struct RowsOfN {
    uint32_t address = 0;  // b_lane
    __device__ __forceinline__ void load(uint32_t (&fragment)[4], int n, int step) const {
        ptx::ldmatrix_x4(fragment, Tile::moved(address, 2 * step) + n * 16 * Tile::kPitch);
    }
};
// Rows of the tile are k, and n starts at a part of the columns, of kChunks times 8. Where parts do not divide a panel or the reverse, the
// place of each column is computed.
template <class Tile, int kChunks> struct ColumnsOfN {
    static constexpr bool kFolds = kChunks % Tile::kPanelChunks == 0 || Tile::kPanelChunks % kChunks == 0;
    uint32_t address = 0;
    int first = 0;  // chunk, of this lane's address

    __device__ __forceinline__ static ColumnsOfN of(Tile tile, int lane, int part) {
        const uint32_t lane_address = tile::bt_lane(tile, lane);
        if constexpr (kFolds) return {Tile::moved(lane_address, part * kChunks), 0};
        return {lane_address, part * kChunks};
    }
    // `bytes` further: to another stage, or further rows.
    __device__ __forceinline__ ColumnsOfN after(uint32_t bytes) const { return {address + bytes, first}; }
    __device__ __forceinline__ void load(uint32_t (&fragment)[4], int n, int step) const {
        ptx::ldmatrix_x4_trans(fragment, Tile::moved(address, (kFolds ? 0 : first) + 2 * n) + step * 16 * Tile::kPitch);
    }
};

// Which warp this is, and its places in shared memory: addresses of this lane, to be moved by constants and by stage.
template <class Traits> struct BackwardWarp {
    using Tiles = BackwardTiles<Traits>;
    using QueriesT = ColumnsOfN<typename Tiles::Q, Traits::kColumns / 8>;
    using ValuesT = ColumnsOfN<typename Tiles::O, Traits::kColumnsV / 8>;
    uint32_t base = 0;  // of shared memory
    int thread = 0;

    // What is computed from it is not held in registers.
    __device__ __forceinline__ BackwardWarp again() const { return {base, ptx::opaque(thread)}; }
    __device__ __forceinline__ int lane() const { return thread % 32; }
    __device__ __forceinline__ int index() const { return thread / 32 % Traits::kRoleWarps; }
    __device__ __forceinline__ int group() const { return index() % Traits::kGroups; }
    __device__ __forceinline__ int part() const { return index() / Traits::kGroups; }
    // Fragments of K and V as A, of Q and dO as B (their rows are n, or k).
    __device__ __forceinline__ typename Tiles::K k() const { return {base}; }
    __device__ __forceinline__ uint32_t k_lane() const {
        return tile::a_lane(k(), lane()) + group() * 32 * Tiles::K::kPitch;
    }
    __device__ __forceinline__ uint32_t v_lane() const {
        return tile::a_lane(typename Tiles::V{base + Traits::kVOffset}, lane()) + group() * 32 * Tiles::V::kPitch;
    }
    __device__ __forceinline__ RowsOfN<typename Tiles::Q> q_lane(uint32_t bytes) const {
        return {bytes + tile::b_lane(typename Tiles::Q{base + Traits::kQOffset}, lane()) +
                part() * Traits::kQueries * Tiles::Q::kPitch};
    }
    __device__ __forceinline__ RowsOfN<typename Tiles::O> o_lane(uint32_t bytes) const {
        return {bytes + tile::b_lane(typename Tiles::O{base + Traits::kOOffset}, lane()) +
                part() * Traits::kQueries * Tiles::O::kPitch};
    }
    __device__ __forceinline__ QueriesT qt_lane(uint32_t bytes) const {
        return QueriesT::of({base + Traits::kQOffset + bytes}, lane(), part());
    }
    __device__ __forceinline__ ValuesT ot_lane(uint32_t bytes) const {
        return ValuesT::of({base + Traits::kOOffset + bytes}, lane(), part());
    }
    // Two values of lse (or delta) a quad: queries 2 (lane % 4) and the next of the warp's.
    __device__ __forceinline__ uint32_t lse_lane() const {
        return base + Traits::kLseOffset + part() * Traits::kQueries * 4 + lane() % 4 * 8;
    }
    __device__ __forceinline__ uint32_t delta_lane() const {
        return lse_lane() + (Traits::kDeltaOffset - Traits::kLseOffset);
    }
    // P as fragments: 512 bytes each, 16 a lane, of (group, k16 step of queries, m); the group's, and from this warp's queries on.
    __device__ __forceinline__ uint32_t p_group() const {
        return base + Traits::kPOffset + group() * (Traits::kShape.tile_m / 16) * 1024 + lane() * 16;
    }
    __device__ __forceinline__ uint32_t p_own() const { return p_group() + part() * (Traits::kQueries / 16) * 1024; }
    // dS as a pair of queries a store, and as A operand of dK (with parts).
    __device__ __forceinline__ uint32_t ds_store() const {
        return typename Tiles::Ds{base + Traits::kDsOffset}.at(group() * 32 + lane() / 4,
                                                               part() * Traits::kQueries + lane() % 4 * 2);
    }
    __device__ __forceinline__ uint32_t ds_lane() const {
        return tile::a_lane(typename Tiles::Ds{base + Traits::kDsOffset}, lane()) + group() * 32 * Tiles::Ds::kPitch;
    }
};

template <int kBlocks> __device__ __forceinline__ void clear(float (&acc)[2][kBlocks][4]) {
#pragma unroll
    for (int i = 0; i < 2 * kBlocks * 4; ++i) acc[i / (kBlocks * 4)][i / 4 % kBlocks][i % 4] = 0.0f;
}

// acc (32 rows) += A B over kSteps k16 steps. `load_a(a, step)` gives the two A fragments of a step. Fragments are loaded one use ahead.
template <class Element, int kSteps, int kBlocks>
__device__ __forceinline__ void multiply(float (&acc)[2][kBlocks][4], auto load_a, const auto& b) {
    constexpr int kPairs = kBlocks / 2, kLast = kSteps * kPairs - 1;
    uint32_t a[2][2][4], f[2][4];
    load_a(a[0], 0);
    b.load(f[0], 0, 0);
#pragma unroll
    for (int i = 0; i <= kLast; ++i) {
        const int step = i / kPairs, n = i % kPairs;
        if (i < kLast) b.load(f[(i + 1) % 2], (i + 1) % kPairs, (i + 1) / kPairs);
        if (n == kPairs - 1 && step + 1 < kSteps) load_a(a[(step + 1) % 2], step + 1);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
            tile::Products<Element>::mma(acc[m][2 * n], a[step % 2][m], f[i % 2][0], f[i % 2][1]);
            tile::Products<Element>::mma(acc[m][2 * n + 1], a[step % 2][m], f[i % 2][2], f[i % 2][3]);
        }
    }
}

// A from the rows of a tile; from fragments stored as P is; from registers.
template <class Tile> __device__ __forceinline__ auto rows_a(uint32_t address) {
    return [address](uint32_t(&a)[2][4], int step) {
        ptx::ldmatrix_x4(a[0], Tile::moved(address, 2 * step));
        ptx::ldmatrix_x4(a[1], Tile::moved(address, 2 * step) + 16 * Tile::kPitch);
    };
}
__device__ __forceinline__ void load_fragment(uint32_t (&a)[4], uint32_t address) {
    const uint4 x = ptx::load_shared_16(address);
    a[0] = x.x, a[1] = x.y, a[2] = x.z, a[3] = x.w;
}
__device__ __forceinline__ auto stored_a(uint32_t address) {
    return [address](uint32_t(&a)[2][4], int step) {
        load_fragment(a[0], address + step * 1024);
        load_fragment(a[1], address + step * 1024 + 512);
    };
}
template <int kSteps> __device__ __forceinline__ auto held_a(const uint32_t (&held)[kSteps][2][4]) {
    return [&held](uint32_t(&a)[2][4], int step) {
#pragma unroll
        for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = held[step][i / 4][i % 4];
    };
}

// Scores -> packed A fragments, a k16 step of 16 queries each.
template <class Element, int kBlocks>
__device__ __forceinline__ void pack_fragments(uint32_t (&a)[kBlocks / 2][2][4], const float (&s)[2][kBlocks][4]) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) tile::pack_a<Element>(a[i / 2][i % 2], s[i % 2], i / 2);
}
template <int kSteps>
__device__ __forceinline__ void store_fragments(const uint32_t (&a)[kSteps][2][4], uint32_t address) {
#pragma unroll
    for (int i = 0; i < 2 * kSteps; ++i) {
        const uint32_t(&x)[4] = a[i / 2][i % 2];
        ptx::store_shared_16(address + i * 512, {x[0], x[1], x[2], x[3]});
    }
}
// Fragments of dS^T -> [key][query] in shared memory.
template <class Tile, int kSteps>
__device__ __forceinline__ void store_grad_scores(const uint32_t (&a)[kSteps][2][4], uint32_t address) {
#pragma unroll
    for (int i = 0; i < 8 * kSteps; ++i)
        ptx::store_shared_4(Tile::moved(address, i / 8 * 2 + i / 2 % 2) + (i / 4 % 2 * 16 + i % 2 * 8) * Tile::kPitch,
                            a[i / 8][i / 4 % 2][i % 4]);
}

// The intervals of a tile's queries: each lane finds those of its rows once and hands them round.
template <int kQueries> struct QueryIntervals {
    static constexpr int kSlots = (kQueries + 31) / 32;
    Interval keys[kSlots];

    __device__ QueryIntervals(const AttentionView& view, const BackwardBlock& block, int32_t row) {
#pragma unroll
        for (int slot = 0; slot < kSlots; ++slot) {
            const int32_t query = row + slot * 32 + static_cast<int32_t>(threadIdx.x) % 32;
            keys[slot] = query < block.sequence.seqlen_q ? view.keys_of(block.mask, block.batch, block.sequence, query)
                                                         : Interval{0, 0};
        }
    }
    // Query 8 n + i; n is the same in all lanes, i is each lane's own.
    __device__ __forceinline__ Interval of(int n, int i) const {
        const Interval& from = keys[n / 4];
        return {__shfl_sync(0xffffffffu, from.begin, n % 4 * 8 + i), __shfl_sync(0xffffffffu, from.end, n % 4 * 8 + i)};
    }
};

// p = 0 where the query does not see the key.
template <int kBlocks>
__device__ inline void hide(float (&p)[2][kBlocks][4], const AttentionView& view, const BackwardBlock& block,
                            PairOrigin origin) {
    const QueryIntervals<kBlocks * 8> intervals(view, block, origin.query);
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int n = 0; n < kBlocks; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const Interval keys = intervals.of(n, lane % 4 * 2 + e);
            const int32_t begin = keys.begin - origin.key - lane / 4;
            const uint32_t length = static_cast<uint32_t>(keys.end - keys.begin);
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (static_cast<uint32_t>(i * 8 - begin) >= length) p[i / 2][n][i % 2 * 2 + e] = 0.0f;
        }
}

// Raw scores -> probabilities, in place: 2^(scale s - lse). `lse`: address of the lane's first pair.
template <int kBlocks>
__device__ __forceinline__ void make_probabilities(float (&s)[2][kBlocks][4], uint32_t lse, float scale) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
        const float2 shift = ptx::load_shared_floats(lse + n * 32);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            s[i / 2][n][i % 2 * 2] = ptx::exp2(fmaf(s[i / 2][n][i % 2 * 2], scale, -shift.x));
            s[i / 2][n][i % 2 * 2 + 1] = ptx::exp2(fmaf(s[i / 2][n][i % 2 * 2 + 1], scale, -shift.y));
        }
    }
}

// dP^T starts at -delta, so that the product leaves dP - delta.
template <int kBlocks> __device__ __forceinline__ void start_at_minus(float (&dp)[2][kBlocks][4], uint32_t delta) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
        const float2 x = ptx::load_shared_floats(delta + n * 32);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            dp[i / 2][n][i % 2 * 2] = -x.x;
            dp[i / 2][n][i % 2 * 2 + 1] = -x.y;
        }
    }
}

}  // namespace tilewise::cuda::sm80
