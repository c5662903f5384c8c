// What a backward row of kernels.inc fixes at compile time, and what follows from it: threads, registers, the map of shared memory.
#pragma once

#include "cuda/sm90/traits.hpp"

namespace tilewise::cuda::sm90 {

struct BackwardShape {
    int head_dim;    // columns of q and k that are multiplied; smaller ones are filled with zeros
    int head_dim_v;  // columns of v and dO
    int tile_m;      // query rows of a step
    int q_stages;    // tiles of Q in shared memory: S runs a step ahead of dK
    int o_stages;    // tiles of dO
    int dq_stages;   // tiles of dQ on their way to global memory
    int dk_shared;   // 1: dS^T is read back from shared memory for dK; 0: it is held in registers
};

constexpr int kBackwardGroups = 2;  // consumers, 64 keys each
constexpr int kBackwardKeys = kBackwardGroups * kGroupRows;
constexpr int kKeyBlockBytes = 256;  // room for a KeyBlock

template <class ElementT, class ScoreT, int... kNumbers> struct BackwardTraits {
    using Element = ElementT;
    static constexpr BackwardShape kShape = {kNumbers...};
    static constexpr bool kHasModifiers = !__is_same(ScoreT, PlainScore);
    static constexpr int kTileM = kShape.tile_m;
    static constexpr int kKeyGroups = kBackwardGroups, kKeys = kBackwardKeys;
    static constexpr int kThreads = 128 * (1 + kBackwardGroups);
    static constexpr int kConsumerWarps = 4 * kBackwardGroups;
    static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
    static constexpr int kKPanels = panels_of(kShape.head_dim), kVPanels = panels_of(kShape.head_dim_v);
    // dQ^T of a step is one block of 64 columns of d a panel. Two: a warpgroup makes one each. One: they take turns.
    static constexpr bool kTurns = kKPanels == 1;
    static_assert(kKPanels <= kBackwardGroups);
    static_assert(kTileM % 16 == 0 && kTileM <= 128);
    static_assert(kShape.q_stages >= 3, "S of a step waits for its Q before Q of two steps ago is handed back");

    // Shared memory, bytes: K, V; stages of Q, of dO; two of dS as [panel of 64 keys][row][key]; stages of dQ in the order of the accumulators;
    // lse, delta; which keys each row of a masked step sees; what a step is; what the block computes; barriers.
    static constexpr int kKBytes = kBackwardKeys * kKPanels * kLineBytes;
    static constexpr int kVBytes = kBackwardKeys * kVPanels * kLineBytes;
    static constexpr int kQBytes = kTileM * kKPanels * kLineBytes;
    static constexpr int kOBytes = kTileM * kVPanels * kLineBytes;
    static constexpr int kDsBytes = kBackwardGroups * kTileM * kLineBytes;
    static constexpr int kDqBytes = kKPanels * kTileM * kPanelColumns * 4;
    static constexpr int kStatBytes = kTileM * 4;
    static constexpr int kSeenBytes = kTileM * 2;  // what each row sees
    static constexpr int kVOffset = kKBytes;
    static constexpr int kQOffset = kVOffset + kVBytes;
    static constexpr int kOOffset = kQOffset + kShape.q_stages * kQBytes;
    static constexpr int kDsOffset = kOOffset + kShape.o_stages * kOBytes;
    static constexpr int kDqOffset = kDsOffset + 2 * kDsBytes;
    static constexpr int kLseOffset = kDqOffset + kShape.dq_stages * kDqBytes;
    static constexpr int kDeltaOffset = kLseOffset + kShape.q_stages * kStatBytes;
    static constexpr int kSeenOffset = kDeltaOffset + kShape.o_stages * kStatBytes;
    static constexpr int kStepOffset = kSeenOffset + kShape.q_stages * kSeenBytes;
    static constexpr int kBlockOffset = kStepOffset + kShape.q_stages * 16;
    static constexpr int kHullOffset = kBlockOffset + kKeyBlockBytes;  // an interval of rows, before the steps
    static constexpr int kBarrierOffset = kHullOffset + 8;
    // Barriers, 8 bytes each: full and empty of Q, of dO, of dQ; K, V, landing.
    static constexpr int kQBarriers = kBarrierOffset;
    static constexpr int kOBarriers = kQBarriers + 16 * kShape.q_stages;
    static constexpr int kDqBarriers = kOBarriers + 16 * kShape.o_stages;
    static constexpr int kKBarrier = kDqBarriers + 16 * kShape.dq_stages;
    static constexpr int kVBarrier = kKBarrier + 8;
    static constexpr int kLanding = kVBarrier + 8;
    static constexpr int kSharedBytes = kLanding + 8;
    static_assert(kSharedBytes <= 227 * 1024, "the tiles do not fit in shared memory");
};

}  // namespace tilewise::cuda::sm90
