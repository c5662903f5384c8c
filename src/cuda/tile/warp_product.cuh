// Products of one warp: accumulators (kMBlocks x kNBlocks blocks of 16 x 8) += A B, operands from shared memory or registers.
#pragma once

#include "cuda/tile/element.cuh"
#include "cuda/tile/shared_tile.cuh"
#include "cuda/tile/swizzled_tile.cuh"

namespace tilewise::tile {

// Two accumulator blocks of a row pair as the A operand of the next product: k16 chunk `k` of a score tile.
template <class Element, int kNBlocks>
__device__ __forceinline__ void pack_a(uint32_t (&a)[4], const float (&s)[kNBlocks][4], int k) {
    using P = Products<Element>;
    a[0] = P::pack(s[2 * k][0], s[2 * k][1]);
    a[1] = P::pack(s[2 * k][2], s[2 * k][3]);
    a[2] = P::pack(s[2 * k + 1][0], s[2 * k + 1][1]);
    a[3] = P::pack(s[2 * k + 1][2], s[2 * k + 1][3]);
}

// B of a step from a tile: `address` is the lane's in its first blocks (b_lane, bt_lane); load(fragment, n) gives two n8 blocks.
template <class Tile> __device__ __forceinline__ auto rows_of_n(uint32_t address) {
    return [address](uint32_t(&fragment)[4], int n) { ptx::ldmatrix_x4(fragment, address + n * 16 * Tile::kPitch); };
}
template <class Tile> __device__ __forceinline__ auto rows_of_k(uint32_t address) {
    return [address](uint32_t(&fragment)[4], int n) { ptx::ldmatrix_x4_trans(fragment, Tile::moved(address, 2 * n)); };
}

// One k16 step: acc += a (kMBlocks fragments) x B.
template <class Element, int kMBlocks, int kNBlocks, class LoadB>
__device__ __forceinline__ void multiply_step(float (&acc)[kMBlocks][kNBlocks][4], const uint32_t (&a)[kMBlocks][4],
                                              LoadB load_b) {
#pragma unroll
    for (int n = 0; n < kNBlocks / 2; ++n) {
        uint32_t fragment[4];
        load_b(fragment, n);
#pragma unroll
        for (int m = 0; m < kMBlocks; ++m) {
            Products<Element>::mma(acc[m][2 * n], a[m], fragment[0], fragment[1]);
            Products<Element>::mma(acc[m][2 * n + 1], a[m], fragment[2], fragment[3]);
        }
    }
}

}  // namespace tilewise::tile
