// What a decode warp keeps of its 16 query rows: fragments of Q, O, the softmax; and the two products of a tile of keys with them. And a
// row's softmax as others see it.
#pragma once

#include "cuda/attend/softmax_tile.cuh"
#include "cuda/sm80/decode_traits.hpp"
#include "cuda/tile/warp_product.cuh"

namespace tilewise::cuda::sm80 {

// A row's softmax over some keys.
struct RowState {
    float reference = 0.0f;  // base-2 logarithm
    float row_sum = 0.0f;
};

template <class Traits> struct DecodeWarp {
    using Element = typename Traits::Element;
    using QTile = tile::SharedTile<kDecodeTileM, Traits::kShape.head_dim>;
    using KTile = tile::SharedTile<Traits::kShape.tile_n, Traits::kShape.head_dim>;
    using VTile = tile::SharedTile<Traits::kShape.tile_n, Traits::kShape.head_dim_v>;
    using Scores = float[1][Traits::kNBlocks][4];

    uint32_t q[Traits::kQInRegisters ? Traits::kQSteps : 1][1][4];
    float o[1][Traits::kVBlocks][4];
    SoftmaxRows<Element, 1> rows;

    __device__ __forceinline__ void start(uint32_t q_lane) {
        if constexpr (Traits::kQInRegisters)
#pragma unroll
            for (int step = 0; step < Traits::kQSteps; ++step) ptx::ldmatrix_x4(q[step][0], q_lane + step * 32);
        rows.clear();
#pragma unroll
        for (int v = 0; v < Traits::kVBlocks; ++v)
#pragma unroll
            for (int e = 0; e < 4; ++e) o[0][v][e] = 0.0f;
    }
    // S = Q K^T, raw. Addresses are those of a_lane and b_lane.
    __device__ __forceinline__ void multiply_keys(Scores& s, uint32_t q_lane, uint32_t k_lane) {
#pragma unroll
        for (int n = 0; n < Traits::kNBlocks; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) s[0][n][e] = 0.0f;
#pragma unroll
        for (int step = 0; step < Traits::kQSteps; ++step) {
            auto& a = q[Traits::kQInRegisters ? step : 0];
            if constexpr (!Traits::kQInRegisters) ptx::ldmatrix_x4(a[0], q_lane + step * 32);
            tile::multiply_step<Element>(s, a, tile::rows_of_n<KTile>(KTile::moved(k_lane, 2 * step)));
        }
    }
    // O += P V.
    __device__ __forceinline__ void multiply_values(const Scores& p, uint32_t v_lane) {
#pragma unroll
        for (int step = 0; step < Traits::kShape.tile_n / 16; ++step) {
            uint32_t a[1][4];
            tile::pack_a<Element>(a[0], p[0], step);
            tile::multiply_step<Element>(o, a, tile::rows_of_k<VTile>(v_lane + step * 16 * VTile::kPitch));
        }
    }
};

}  // namespace tilewise::cuda::sm80
