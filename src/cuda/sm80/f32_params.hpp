// Attention on CUDA cores: sizes that host and kernels agree on, and the kernels' addresses. See f32_tile.cuh for how it computes.
#pragma once

#include "cuda/common/params.hpp"

namespace tilewise::cuda::sm80 {

constexpr int kF32Threads = 256;
constexpr int kF32Tile = 64;          // rows of a tile, of queries and of keys
constexpr int kF32MostColumns = 256;  // of an output that one launch computes

// The three gradients that are sums over tiles; each is a kernel of its own.
enum class F32Gradient { kQuery, kKey, kValue };

// A block makes one block of grad_bias; an axis of size 1 is summed over.
struct F32BiasParams {
    BackwardParams backward;
    PairTensor grad_bias;
    int64_t size[4] = {0, 0, 0, 0};  // of grad_bias
    int64_t num_tiles[2] = {1, 1};   // of its rows, of its keys
};

// Elements of q, k, v are of type T: float, F16 or BF16, each instantiated in a file of its own. `columns`: of the output, at most
// kF32MostColumns.
template <class T> const void* f32_forward_entry(int columns);
template <class T> const void* f32_backward_entry(F32Gradient gradient, int columns);
template <class T> const void* f32_bias_entry();

}  // namespace tilewise::cuda::sm80
