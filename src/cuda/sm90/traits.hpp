// What a row of kernels.inc fixes at compile time, and what follows from it: threads, registers, the map of shared memory.
#pragma once

#include "math/types.hpp"

namespace tilewise::cuda::sm90 {

struct PlainScore {};  // a score is only scaled, and tiles of keys are boxes of a tensor map
struct AnyScore {};    // softcap, ALiBi, bias, a boolean mask, dropout; keys of any page size: flags at run time

struct ForwardShape {
    int head_dim;    // columns of q and k that are multiplied; smaller ones are filled with zeros
    int head_dim_v;  // columns of v
    int tile_n;      // keys of a step
    int warpgroups;  // consumers, 64 packed query rows each
    int kv_stages;   // tiles of K, and of V, in shared memory
    int q_stages;    // tiles of Q
    int staged;      // 1: O leaves through shared memory; 0: from registers, where shared memory is full
    int turns;       // 1: warpgroups take turns to issue their products
    int skips;       // 1: a warpgroup skips key tiles that none of its rows sees
    int finishes = 0;  // 1: a row tile's last product does not go with the next one's first, which would wait for the only stage of Q
};

constexpr int kGroupRows = 64;
constexpr int kPanelColumns = 64;  // of a panel: lines of 128 bytes, swizzled
constexpr int kLineBytes = 128;
constexpr int kWorkStages = 4;
constexpr int kWorkBytes = 224;  // room for a WorkItem
constexpr int panels_of(int columns) { return (columns + kPanelColumns - 1) / kPanelColumns; }

template <class ElementT, class ScoreT, int... kNumbers> struct ForwardTraits {
    using Element = ElementT;
    static constexpr ForwardShape kShape = {kNumbers...};
    static constexpr bool kHasModifiers = !__is_same(ScoreT, PlainScore);
    static constexpr int kTileM = kGroupRows * kShape.warpgroups;
    static constexpr int kThreads = 128 * (1 + kShape.warpgroups);
    static constexpr int kConsumerWarps = 4 * kShape.warpgroups;
    static constexpr int kKPanels = panels_of(kShape.head_dim), kVPanels = panels_of(kShape.head_dim_v);
    // A block's registers are what it was launched with: 128 (producer + warpgroups * consumer) may not exceed that, or setmaxnreg waits for ever.
    static_assert(kShape.warpgroups == 2 || kShape.warpgroups == 3);
    static constexpr int kProducerRegisters = kShape.warpgroups == 2 ? 40 : 32;
    static constexpr int kConsumerRegisters = kShape.warpgroups == 2 ? 232 : 160;
    // Shared memory, bytes: Q stages, K stages, V stages, O, the work ring, barriers.
    static constexpr int kQBytes = kTileM * kKPanels * kLineBytes;
    static constexpr int kKBytes = kShape.tile_n * kKPanels * kLineBytes;
    static constexpr int kVBytes = kShape.tile_n * kVPanels * kLineBytes;
    static constexpr int kOBytes = kShape.staged != 0 ? kTileM * kVPanels * kLineBytes : 0;
    static constexpr int kKOffset = kShape.q_stages * kQBytes;
    static constexpr int kVOffset = kKOffset + kShape.kv_stages * kKBytes;
    static constexpr int kOOffset = kVOffset + kShape.kv_stages * kVBytes;
    static constexpr int kWorkOffset = kOOffset + kOBytes;
    static constexpr int kBarrierOffset = kWorkOffset + kWorkStages * kWorkBytes;
    static constexpr int kBarriers = 2 * (kShape.q_stages + 2 * kShape.kv_stages + kWorkStages) + kWorkStages + 1;
    static constexpr int kSharedBytes = kBarrierOffset + 8 * kBarriers;
    static_assert(kSharedBytes <= 227 * 1024, "the tiles do not fit in shared memory");
};

}  // namespace tilewise::cuda::sm90
