// A tile of 16-bit elements in shared memory as panels of 64 (or 32) columns, whose rows are lines of 128 (64) bytes. The 16-byte chunk c of
// row r lies at place c ^ r % 8 (c ^ r / 2 % 4) of its line: the eight rows of an ldmatrix then use all banks once, and so do eight
// neighbouring lanes that copy one line. Rows padded by 16 bytes do the first as well, but their lines cross the 128 bytes that a copy
// writes at once: 10 wavefronts a warp's cp.async in place of 4.
#pragma once

#include "cuda/tile/shared_tile.cuh"

namespace tilewise::tile {

template <int kRowsT, int kColumnsT> struct SwizzledTile {
    static constexpr int kRows = kRowsT;
    static constexpr int kColumns = kColumnsT;
    static constexpr int kPanelChunks = kColumns % 64 == 0 ? 8 : 4;
    static constexpr int kPitch = kPanelChunks * 16;  // bytes of a row in its panel
    static constexpr int kPanelBytes = kRows * kPitch;
    static constexpr int kBytes = kRows * kColumns * 2;
    static_assert(kColumns % 32 == 0);
    uint32_t base = 0;  // a multiple of 128

    __device__ __forceinline__ uint32_t at(int row, int column) const {
        const int chunk = column / 8, place = chunk % kPanelChunks ^ shift_of(row);
        return base + chunk / kPanelChunks * kPanelBytes + row * kPitch + place * 16 + column % 8 * 2;
    }
    // An address from at(row, 8 chunk), moved on by chunks (by rows): the bits of the numbers that are added must not overlap, that is
    // chunk & chunks & (kPanelChunks - 1) == 0 (row % 8 & rows == 0).
    __device__ __forceinline__ static uint32_t moved(uint32_t address, int chunks) {
        return (address ^ chunks % kPanelChunks * 16) + chunks / kPanelChunks * kPanelBytes;
    }
    __device__ __forceinline__ static uint32_t moved_rows(uint32_t address, int rows) {
        return (address ^ shift_of(rows) * 16) + rows * kPitch;
    }

private:
    __device__ __forceinline__ static int shift_of(int row) { return kPanelChunks == 8 ? row % 8 : row / 2 % 4; }
};

// Either layout, by what a kernel's traits say.
template <bool kSwizzled, int kRows, int kColumns> struct TileChoice { using Type = SwizzledTile<kRows, kColumns>; };
template <int kRows, int kColumns> struct TileChoice<false, kRows, kColumns> {
    using Type = SharedTile<kRows, kColumns>;
};

}  // namespace tilewise::tile
