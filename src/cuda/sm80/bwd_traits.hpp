// What a backward row of kernels.inc fixes at compile time, and what follows from it: who does what, the map of shared memory.
#pragma once

#include "cuda/sm80/traits.hpp"

namespace tilewise::cuda::sm80 {

struct BackwardShape {
    int head_dim;    // columns of q and k in shared memory; smaller ones are filled with zeros
    int head_dim_v;  // columns of v and dO
    int tile_m;      // query rows of a step
    int tile_n;      // keys of a block: 32 a group of warps
    int num_roles;   // 2: half of the warps make P and dV, the others dS and dK; 1: every warp makes all
    int num_parts;  // warps of a role that share 32 keys: each takes a part of the queries of S and a part of the columns of dK, dV
    int num_stages;  // tiles of Q, and of dO, in shared memory
    int num_slots;   // tiles of dS in shared memory
    int dq_turns;    // 2: the roles take turns in computing dQ; 1: all warps share each dQ
    int min_blocks;  // blocks a multiprocessor that the register budget allows
};

constexpr int kBackwardBlockBytes = 448;  // room for a BackwardBlock

template <class ElementT, class ScoreT, int... kNumbers> struct BackwardTraits {
    using Element = ElementT;
    using Score = ScoreT;
    static constexpr BackwardShape kShape = {kNumbers...};
    static constexpr bool kHasModifiers = !__is_same(ScoreT, PlainScore);
    static constexpr bool kHasRoles = kShape.num_roles == 2;
    static constexpr bool kHasParts = kShape.num_parts > 1;
    // Warps and threads.
    static constexpr int kGroups = kShape.tile_n / 32;
    static constexpr int kRoleWarps = kGroups * kShape.num_parts;
    static constexpr int kRoleThreads = 32 * kRoleWarps;
    static constexpr int kWarps = kRoleWarps * kShape.num_roles;
    static constexpr int kThreads = 32 * kWarps;
    // A warp's share: queries of S, columns of dK and of dV, columns of dQ (32 rows).
    static constexpr int kQueries = kShape.tile_m / kShape.num_parts;
    static constexpr int kColumns = kShape.head_dim / kShape.num_parts;
    static constexpr int kColumnsV = kShape.head_dim_v / kShape.num_parts;
    static constexpr int kDqWarps = kWarps / kShape.dq_turns;
    static constexpr int kDqRowParts = kShape.tile_m / 32;
    static constexpr int kDqColumns = kShape.head_dim * kDqRowParts / kDqWarps;
    static_assert(kShape.tile_n % 32 == 0 && kShape.tile_m % 32 == 0 && kQueries % 16 == 0);
    static_assert(kColumns % 16 == 0 && kColumnsV % 16 == 0 && kDqColumns % 16 == 0 && kDqWarps % kDqRowParts == 0);
    static_assert(kHasRoles || (kShape.num_slots == 2 && kShape.num_stages == 2 && kShape.dq_turns == 1));
    static_assert(kRoleThreads >= kShape.tile_m);  // one thread a row moves lse and delta

    // Shared memory, bytes: K, V; stages of Q, of dO; P as fragments; slots of dS as [key][query]; stages of lse, of delta; what the block
    // computes; which rows need no masking; barriers. The rows of dK and dV, in their element type, replace all that precedes the block's description.
    static constexpr int kPSlots = kHasRoles ? (kHasParts && kHasModifiers ? 2 : 1) : kHasParts ? 2 : 0;
    static constexpr int kKBytes = kShape.tile_n * bytes_of_row(kShape.head_dim);
    static constexpr int kVBytes = kShape.tile_n * bytes_of_row(kShape.head_dim_v);
    static constexpr int kQBytes = kShape.tile_m * bytes_of_row(kShape.head_dim);
    static constexpr int kOBytes = kShape.tile_m * bytes_of_row(kShape.head_dim_v);
    static constexpr int kPBytes = kShape.tile_m * kShape.tile_n * 2;
    static constexpr int kDsBytes = kShape.tile_n * bytes_of_row(kShape.tile_m);
    // Where the signed pairs for the other role lie, from P on: with modifiers and parts, P itself is read by its own role too.
    static constexpr int kSignedOffset = kHasRoles && kPSlots == 2 ? kPBytes : 0;
    static constexpr int kVOffset = kKBytes;
    static constexpr int kQOffset = kVOffset + kVBytes;
    static constexpr int kOOffset = kQOffset + kShape.num_stages * kQBytes;
    static constexpr int kPOffset = kOOffset + kShape.num_stages * kOBytes;
    static constexpr int kDsOffset = kPOffset + kPSlots * kPBytes;
    static constexpr int kLseOffset = kDsOffset + kShape.num_slots * kDsBytes;
    static constexpr int kDeltaOffset = kLseOffset + kShape.num_stages * kShape.tile_m * 4;
    static constexpr int kBlockOffset = kDeltaOffset + kShape.num_stages * kShape.tile_m * 4;
    static constexpr int kInteriorOffset = kBlockOffset + kBackwardBlockBytes;  // an interval of rows a group
    static constexpr int kBarrierOffset = kInteriorOffset + kGroups * 8;
    // Barriers, 8 bytes each, in this order: full and empty of Q, of dO, of dS, of P (one a group).
    static constexpr int kQBarriers = kBarrierOffset;
    static constexpr int kOBarriers = kQBarriers + 16 * kShape.num_stages;
    static constexpr int kDsBarriers = kOBarriers + 16 * kShape.num_stages;
    static constexpr int kPBarriers = kDsBarriers + 16 * kShape.num_slots;
    static constexpr int kEndBarrier = kPBarriers + 16 * kGroups;  // all warps are through with their steps
    static constexpr int kSharedBytes = kEndBarrier + 8;
    static_assert(kWarps * 32 * bytes_of_row(kColumns > kColumnsV ? kColumns : kColumnsV) <= kBlockOffset);
};

}  // namespace tilewise::cuda::sm80
