// A tile of 16-bit elements in shared memory, rows padded by 16 bytes: consecutive rows then start in different banks for every width
// that is a multiple of 16, so ldmatrix is free of conflicts, and a fragment's address is a base plus a constant. See also swizzled_tile.cuh.
#pragma once

#include "cuda/ptx/shared.cuh"

namespace tilewise::tile {

template <int kRowsT, int kColumnsT> struct SharedTile {
    static constexpr int kRows = kRowsT;
    static constexpr int kColumns = kColumnsT;
    static constexpr int kPitch = kColumns * 2 + 16;  // bytes
    static constexpr int kBytes = kRows * kPitch;
    uint32_t base = 0;

    __device__ __forceinline__ uint32_t at(int row, int column) const { return base + row * kPitch + column * 2; }
    // An address in the tile, moved on by 16-byte chunks, by rows.
    __device__ __forceinline__ static uint32_t moved(uint32_t address, int chunks) { return address + chunks * 16; }
    __device__ __forceinline__ static uint32_t moved_rows(uint32_t address, int rows) {
        return address + rows * kPitch;
    }
};

// Row addresses of a lane for ldmatrix.x4, to be moved by constants. The four matrices are
//   a_lane: rows 0-7 | 8-15 of columns 0-7, then of columns 8-15: an A fragment of m16n8k16 from row-major A
//   b_lane: rows 0-7 of columns 0-7 | 8-15, then rows 8-15: B fragments of two neighbouring n8 blocks from B stored (n, k)
template <class Tile> __device__ __forceinline__ uint32_t a_lane(const Tile& t, int lane) {
    return t.at(lane % 16, lane / 16 * 8);
}
template <class Tile> __device__ __forceinline__ uint32_t b_lane(const Tile& t, int lane) {
    return t.at(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8);
}
// With ldmatrix.trans from B stored (k, n): rows are k. Same order as b_lane: (k 0-7 | 8-15 of n 0-7), then of n 8-15.
template <class Tile> __device__ __forceinline__ uint32_t bt_lane(const Tile& t, int lane) {
    return t.at(lane % 16, lane / 16 * 8);
}

}  // namespace tilewise::tile
