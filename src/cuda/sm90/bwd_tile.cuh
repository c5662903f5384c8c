// The barriers of a block of the backward, and its consumers' products.
#pragma once

#include "cuda/ptx/warpgroup.cuh"
#include "cuda/sm90/bwd_traits.hpp"
#include "cuda/sm90/products.cuh"
#include "cuda/sm90/tile.cuh"

namespace tilewise::cuda::sm90 {

template <class Traits> struct BackwardBarriers {
    using QRing = Ring<Traits::kShape.q_stages>;
    using ORing = Ring<Traits::kShape.o_stages>;
    using DqRing = Ring<Traits::kShape.dq_stages>;

    __device__ static void init(uint32_t shared) {
        constexpr uint32_t kWarp = ptx::kArrivalsOfWarp, kReads = Traits::kConsumerWarps * kWarp;
        QRing::init(shared + Traits::kQBarriers, kWarp, kReads);
        ORing::init(shared + Traits::kOBarriers, kWarp, kReads);
        DqRing::init(shared + Traits::kDqBarriers, Traits::kTurns ? 4 * kWarp : kReads, 1);
        ptx::mbarrier_init(shared + Traits::kKBarrier, kWarp);
        ptx::mbarrier_init(shared + Traits::kVBarrier, kWarp);
        ptx::mbarrier_init(shared + Traits::kLanding, 1);
    }
};

// Named barriers.
constexpr int kDsBarrier =
    1;  // all consumers, once a step: dS is complete. It has two stages, so nobody still reads the one written next
constexpr int kStoreBarrier = 2;  // and the next: of a warpgroup, around its rows of dK and dV
constexpr int kConsumerThreads = 128 * kBackwardGroups;

}  // namespace tilewise::cuda::sm90
