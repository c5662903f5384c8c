// The end of a block of the backward: sums of 32 keys and some columns -> rows of grad_k or grad_v, or f32 sums of a part of a
// group's heads.
#pragma once

#include "cuda/attend/epilogue.cuh"
#include "cuda/attend/query_rows.cuh"
#include "cuda/sm80/bwd_tile.cuh"

namespace tilewise::cuda::sm80 {

// Where a warp's sums belong.
struct GradTarget {
    const HeadTensor* tensor = nullptr;  // grad_k or grad_v
    float* sums =
        nullptr;  // scratch.dk or dv: (parts, key rows, num_heads_kv, head dimension), given where there are parts
    int32_t head_dim = 0;
    int32_t first_column = 0;
    float factor = 1.0f;  // of the gradient
    float sums_factor = 1.0f;
    bool vector = false;
};

template <int kBlocks>
__device__ inline void store_sums(const float (&acc)[2][kBlocks][4], const GradTarget& target,
                                  const BackwardParams& params, const BackwardBlock& block, int32_t first_key) {
    const Sizes& sizes = params.view.sizes;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t first = block.split * sizes.total_k + block.sequence.k_batch * params.view.sequences.seqlen_k +
                          block.sequence.first_key;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        const int32_t key = first_key + accumulator_row(r, lane);
        if (key >= block.sequence.seqlen_k) continue;
        float* const to = target.sums + ((first + key) * sizes.num_heads_kv + block.head_kv) * target.head_dim;
#pragma unroll
        for (int n = 0; n < kBlocks; ++n)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int column = target.first_column + n * 8 + lane % 4 * 2 + e;
                if (column < target.head_dim) to[column] = acc[r / 2][n][r % 2 * 2 + e] * target.sums_factor;
            }
    }
}

// `staged`: address of the warp's own 32 rows in shared memory, which nobody reads any more.
template <class Element, int kBlocks>
__device__ inline void store_gradient(const float (&acc)[2][kBlocks][4], const GradTarget& target,
                                      const BackwardParams& params, const BackwardBlock& block, int32_t first_key,
                                      uint32_t staged) {
    if (target.sums != nullptr) {
        store_sums(acc, target, params, block, first_key);
        return;
    }
    using Tile = tile::SwizzledTile<32, kBlocks * 8>;
    const float factor[4] = {target.factor, target.factor, target.factor, target.factor};
    stage_rows<Element>(Tile{staged}, acc, factor);
    __syncwarp();
    const Sequence& s = block.sequence;
    const int32_t key = first_key + static_cast<int32_t>(threadIdx.x) % 32;
    const int64_t row_bytes =
        key < s.seqlen_k ? target.tensor->offset(s.k_batch, s.first_key + key, block.head_kv) * 2 : int64_t{-1};
    HeadTensor tensor = *target.tensor;
    tensor.data = static_cast<uint16_t*>(tensor.data) + target.first_column * tensor.dim_stride;
    store_rows(Tile{staged}, tensor, row_bytes, min(target.head_dim - target.first_column, kBlocks * 8), target.vector);
}

}  // namespace tilewise::cuda::sm80
