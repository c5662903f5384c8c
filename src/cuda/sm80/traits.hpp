// What a row of kernels.inc fixes at compile time, and what follows from it: threads, registers, the map of shared memory.
#pragma once

#include "math/types.hpp"

namespace tilewise::cuda::sm80 {

struct PlainScore {};  // a score is only scaled
struct ModScore {};    // softcap, ALiBi, bias, a boolean mask, dropout: flags at run time

struct ForwardShape {
    int head_dim;    // columns of q and k in shared memory; smaller ones are filled with zeros
    int head_dim_v;  // columns of v
    int tile_m;      // packed query rows of a block
    int tile_n;      // keys of a step
    int num_stages;  // tiles of K, and of V, in shared memory
    int num_warps;
    int min_blocks;  // blocks a multiprocessor that the register budget allows
};

// Room for a RowTile and two KvSources.
constexpr int kBlockBytes = 384;
constexpr int pitch_of(int columns) { return columns * 2 + 16; }  // of a padded tile
constexpr int bytes_of_row(int columns) { return columns * 2; }   // of a swizzled one

template <class ElementT, class ScoreT, int... kNumbers> struct ForwardTraits {
    using Element = ElementT;
    using Score = ScoreT;
    static constexpr ForwardShape kShape = {kNumbers...};
    static constexpr int kThreads = 32 * kShape.num_warps;
    static constexpr int kWarpRows = kShape.tile_m / kShape.num_warps;
    static constexpr int kMBlocks = kWarpRows / 16;
    static constexpr int kNBlocks = kShape.tile_n / 8;
    static constexpr int kVBlocks = kShape.head_dim_v / 8;
    static constexpr bool kHasModifiers = !__is_same(ScoreT, PlainScore);
    // Narrow heads are bound by issue slots and keep the tile whose addresses differ by constants.
    static constexpr bool kSwizzled = kShape.head_dim > 64;
    static constexpr int row_bytes(int columns) { return kSwizzled ? bytes_of_row(columns) : pitch_of(columns); }
    // Shared memory, bytes: Q (its rows become the rows of O), K stages, V stages, row intervals, what the block computes, barriers (full and empty, of K and of V).
    static constexpr int kWideColumns = kShape.head_dim > kShape.head_dim_v ? kShape.head_dim : kShape.head_dim_v;
    static constexpr int kQBytes = kShape.tile_m * row_bytes(kWideColumns);
    static constexpr int kKBytes = kShape.tile_n * row_bytes(kShape.head_dim);
    static constexpr int kVBytes = kShape.tile_n * row_bytes(kShape.head_dim_v);
    static constexpr int kKOffset = kQBytes;
    static constexpr int kVOffset = kKOffset + kShape.num_stages * kKBytes;
    static constexpr int kRowsOffset = kVOffset + kShape.num_stages * kVBytes;
    static constexpr int kBlockOffset = kRowsOffset + kShape.tile_m * 8;
    static constexpr int kBarrierOffset = kBlockOffset + kBlockBytes;
    static constexpr int kSharedBytes = kBarrierOffset + 4 * kShape.num_stages * 8;
};

}  // namespace tilewise::cuda::sm80
