// What a decode row of kernels.inc fixes at compile time, and what follows from it: threads, the map of shared memory.
#pragma once

#include "cuda/sm80/traits.hpp"

namespace tilewise::cuda::sm80 {

struct DecodeShape {
    int head_dim;    // columns of q and k in shared memory; smaller ones are filled with zeros
    int head_dim_v;  // columns of v
    int tile_n;      // keys of a warp's step: 16 or 32
    int num_stages;  // tiles of K, and of V, of a warp
    int num_warps;
    int min_blocks;  // blocks a multiprocessor that the register budget allows
};

// Packed query rows of a block: one m16 fragment.
constexpr int kDecodeTileM = 16;

// Shared memory behind a block's own, where the blocks of a cluster leave what they have for each other: a barrier, a state a part and
// row, then the parts' columns, of which each block finishes its share.
constexpr int decode_cluster_offset(int shared_bytes) { return (shared_bytes + 127) / 128 * 128; }
constexpr int decode_cluster_bytes(int head_dim_v, int size) {
    const int columns = (head_dim_v / 4 + size - 1) / size;
    return 16 + size * kDecodeTileM * (8 + columns * 16);
}

template <class ElementT, class ScoreT, int... kNumbers> struct DecodeTraits {
    using Element = ElementT;
    using Score = ScoreT;
    static constexpr DecodeShape kShape = {kNumbers...};
    static constexpr int kThreads = 32 * kShape.num_warps;
    static constexpr int kNBlocks = kShape.tile_n / 8;
    static constexpr int kVBlocks = kShape.head_dim_v / 8;
    static constexpr int kQSteps = kShape.head_dim / 16;
    // A row without modifiers serves one token a sequence (decode_token.cuh), one with them everything (decode.cuh).
    static constexpr bool kOneToken = __is_same(ScoreT, PlainScore);
    static constexpr bool kHasModifiers = !kOneToken;
    // Wider heads read Q from shared memory a step: its fragments and those of O do not fit the registers together.
    static constexpr bool kQInRegisters = kShape.head_dim <= 128;
    // Keys that all warps of a block take together.
    static constexpr int kUnit = kShape.num_warps * kShape.tile_n;
    // Shared memory, bytes: Q; each warp's stages of K, then of V (after the main loop its f32 O); a (reference, sum) a row and warp;
    // the word that says which block is the last, or a factor a row, the row tile and that word.
    static constexpr int kQBytes = kDecodeTileM * pitch_of(kShape.head_dim);
    static constexpr int kKBytes = kShape.tile_n * pitch_of(kShape.head_dim);
    static constexpr int kVBytes = kShape.tile_n * pitch_of(kShape.head_dim_v);
    static constexpr int kWarpBytes = kShape.num_stages * (kKBytes + kVBytes);
    static constexpr int kRingsOffset = kQBytes;
    static constexpr int kStatesOffset = kRingsOffset + kShape.num_warps * kWarpBytes;
    static constexpr int kFactorsOffset = kStatesOffset + kShape.num_warps * kDecodeTileM * 8;
    static constexpr int kBlockOffset = kFactorsOffset + kDecodeTileM * 4;
    static constexpr int kSharedBytes = kOneToken ? kFactorsOffset + 16 : kBlockOffset + kBlockBytes;
    // Floats of a row of O; 8 more so that the quads of a fragment hit different banks.
    static constexpr int kOPitch = kShape.head_dim_v + 8;
    static_assert(kShape.tile_n == 16 || kShape.tile_n == 32);
    static_assert(kDecodeTileM * kOPitch * 4 <= kWarpBytes);
};

}  // namespace tilewise::cuda::sm80
