// The warpgroup products of an element type.
#pragma once

#include "cuda/ptx/wgmma.cuh"
#include "math/types.hpp"

namespace tilewise::cuda::sm90 {

template <class Element, int kColumns> struct WgmmaOf;
template <int kColumns> struct WgmmaOf<BF16, kColumns> { using Type = ptx::WgmmaBF16<kColumns>; };
template <int kColumns> struct WgmmaOf<F16, kColumns> { using Type = ptx::WgmmaF16<kColumns>; };

}  // namespace tilewise::cuda::sm90
