// A pair of the backward: its probability behind softcap, ALiBi, bias and a boolean mask.
#pragma once

#include "cuda/attend/elements.cuh"
#include "cuda/attend/score_tile.cuh"
#include "cuda/attend/softmax_tile.cuh"
#include "cuda/ptx/pairs.cuh"

namespace tilewise::cuda {

// A pair of the call, or the first one of a tile.
struct PairOrigin {
    int32_t query = 0;
    int32_t key = 0;
    int32_t head = 0;
};

struct ModifiedPair {
    float p = 0.0f;           // lifted as in the forward (f16: 2^7 P); 0: not visible
    float derivative = 1.0f;  // of softcap
};
// From a raw product; (query, key) exists and its interval shows it.
template <class Element>
__device__ inline ModifiedPair modified_pair(const AttentionView& view, const ScoreModifier& modifier, int32_t batch,
                                             PairOrigin at, float2 product_lse) {
    ModifiedPair pair;
    if (!view.mask_allows(batch, at.head, at.query, at.key)) return pair;
    float s = product_lse.x * modifier.softmax_scale;
    if (modifier.softcap > 0.0f) {
        const float x = __fdividef(s, modifier.softcap);
        s = modifier.softcap * tanh_of(x);
        pair.derivative = tanh_derivative_of(x);
    }
    if (modifier.alibi_slope != 0.0f) s += alibi_term<float>(modifier, at.query, at.key);
    const PairTensor& bias = view.score.bias;
    if (bias.given()) s += load_real(bias.data, bias.dtype, bias.offset(batch, at.head, at.query, at.key));
    pair.p = ptx::exp2(fmaf(s, kLog2E, kLift<Element> - product_lse.y));
    return pair;
}

// Two elements of a register.
template <class Element> __device__ __forceinline__ float2 unpack(uint32_t x) {
    if constexpr (__is_same(Element, BF16))
        return ptx::unpack_bf16(x);
    else
        return ptx::unpack_f16(x);
}

}  // namespace tilewise::cuda
