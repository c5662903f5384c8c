// What a two-pass backward row of kernels.inc fixes at compile time. Two kernels: one makes dK and dV of 64 keys, the other dQ of 128 rows. S and dP
// are computed twice, seven products in place of five; in return nothing is summed in global memory.
#pragma once

#include "cuda/sm90/traits.hpp"

namespace tilewise::cuda::sm90 {

struct TwoPassShape {
    int head_dim;    // columns of q and k that are multiplied; smaller ones are filled with zeros
    int head_dim_v;  // columns of v and dO
    int q_stages;    // of the first kernel: tiles of Q in shared memory
    int o_stages;    // and of dO
    int k_stages;    // of the second kernel: tiles of K
    int v_stages;    // and of V
    int tile_n;      // and the keys of its steps
};

constexpr int kTwoPassTile = 64;  // keys of a block and query rows of a step of the first kernel
constexpr int kTwoPassGroups = 2;
constexpr int kTwoPassBlockBytes = 256;  // room for a KeyBlock or a RowBlock

template <class ElementT, class ScoreT, int... kNumbers> struct TwoPassTraits {
    using Element = ElementT;
    static constexpr TwoPassShape kShape = {kNumbers...};
    static constexpr bool kHasModifiers = !__is_same(ScoreT, PlainScore);
    static constexpr int kThreads = 128 * (1 + kTwoPassGroups);
    static constexpr int kConsumerWarps = 4 * kTwoPassGroups;
    static constexpr int kKPanels = panels_of(kShape.head_dim), kVPanels = panels_of(kShape.head_dim_v);
    static constexpr int kTileM = kTwoPassTile;
    static constexpr int kKTileBytes = kTwoPassTile * kKPanels * kLineBytes;  // of Q as well
    static constexpr int kVTileBytes = kTwoPassTile * kVPanels * kLineBytes;  // and of dO
};

// The kernel of dK and dV. Shared memory, bytes: K, V; stages of Q, of dO; two of P on its way from one warpgroup to the other; lse, delta; which
// keys each row of a masked step sees; what a step is; what the block computes; barriers.
template <class ElementT, class ScoreT, int... kNumbers>
struct KeyPassTraits : TwoPassTraits<ElementT, ScoreT, kNumbers...> {
    using Base = TwoPassTraits<ElementT, ScoreT, kNumbers...>;
    using Base::kKTileBytes, Base::kVTileBytes, Base::kShape, Base::kTileM;
    static constexpr int kKeys = kTwoPassTile, kKeyGroups = 1;
    static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
    static_assert(kShape.q_stages >= 2 && kShape.o_stages >= 2,
                  "S of a step runs while dK of the one before reads its Q");
    static constexpr int kQBytes = kKTileBytes, kOBytes = kVTileBytes;
    static constexpr int kPairBytes = kTileM * kKeys * 2;
    static constexpr int kStatBytes = kTileM * 4;
    static constexpr int kSeenBytes = kTileM * 2;
    static constexpr int kVOffset = kKTileBytes;
    static constexpr int kQOffset = kVOffset + kVTileBytes;
    static constexpr int kOOffset = kQOffset + kShape.q_stages * kQBytes;
    static constexpr int kPairOffset = kOOffset + kShape.o_stages * kOBytes;
    static constexpr int kLseOffset = kPairOffset + 2 * kPairBytes;
    static constexpr int kDeltaOffset = kLseOffset + kShape.q_stages * kStatBytes;
    static constexpr int kSeenOffset = kDeltaOffset + kShape.o_stages * kStatBytes;
    static constexpr int kStepOffset = kSeenOffset + kShape.q_stages * kSeenBytes;
    static constexpr int kBlockOffset = kStepOffset + kShape.q_stages * 16;
    // Barriers, 8 bytes each: full and empty of Q, of dO, of P; K, V, landing.
    static constexpr int kHullOffset = kBlockOffset + kTwoPassBlockBytes;  // an interval of rows, before the steps
    static constexpr int kQBarriers = kHullOffset + 8;
    static constexpr int kOBarriers = kQBarriers + 16 * kShape.q_stages;
    static constexpr int kPairBarriers = kOBarriers + 16 * kShape.o_stages;
    static constexpr int kKBarrier = kPairBarriers + 16 * 2;
    static constexpr int kVBarrier = kKBarrier + 8;
    static constexpr int kLanding = kVBarrier + 8;
    static constexpr int kSharedBytes = kLanding + 8;
    static_assert(kSharedBytes <= 227 * 1024, "the tiles do not fit in shared memory");
};

// The kernel of dQ. Shared memory, bytes: Q, dO; stages of K, of V; what the rows see, lse and delta; what the block computes; barriers.
template <class ElementT, class ScoreT, int... kNumbers>
struct QueryPassTraits : TwoPassTraits<ElementT, ScoreT, kNumbers...> {
    using Base = TwoPassTraits<ElementT, ScoreT, kNumbers...>;
    using Base::kKPanels, Base::kVPanels, Base::kShape;
    static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
    static constexpr int kRows = kTwoPassGroups * kGroupRows;
    static constexpr int kTileN = kShape.tile_n;
    static constexpr int kKTileBytes = kTileN * kKPanels * kLineBytes, kVTileBytes = kTileN * kVPanels * kLineBytes;
    static constexpr int kOOffset = kRows * kKPanels * kLineBytes;
    static constexpr int kKOffset = kOOffset + kRows * kVPanels * kLineBytes;
    static constexpr int kVOffset = kKOffset + kShape.k_stages * kKTileBytes;
    static constexpr int kRowsOffset = kVOffset + kShape.v_stages * kVTileBytes;  // QueryRow of each
    static constexpr int kBlockOffset = kRowsOffset + kRows * 16;
    // Barriers, 8 bytes each: full and empty of K, of V; Q, dO, landing.
    static constexpr int kHullOffset = kBlockOffset + kTwoPassBlockBytes;  // an interval of keys, before the steps
    static constexpr int kKBarriers = kHullOffset + 8;
    static constexpr int kVBarriers = kKBarriers + 16 * kShape.k_stages;
    static constexpr int kQBarrier = kVBarriers + 16 * kShape.v_stages;
    static constexpr int kOBarrier = kQBarrier + 8;
    static constexpr int kLanding = kOBarrier + 8;
    static constexpr int kSharedBytes = kLanding + 8;
    static_assert(kShape.k_stages >= 2, "S of a step is issued beside dQ of the one before");
    static_assert(kSharedBytes <= 227 * 1024, "the tiles do not fit in shared memory");
};

}  // namespace tilewise::cuda::sm90
