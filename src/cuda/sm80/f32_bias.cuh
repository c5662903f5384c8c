// The gradient of an additive bias on CUDA cores: dS of f32_bwd.cuh, summed over the axes along which the bias is broadcast.
//
//   grad_bias (b | 1, h | 1, sq | 1, sk | 1)
//
// A block owns one 64 x 64 piece of it (an axis of size 1 is one piece that takes everything) and adds up, in a fixed order, every
// sequence, head and tile that reaches it: no atomics, no memory beyond the tile, whatever the bias's shape.
#pragma once

#include "cuda/sm80/f32_bwd.cuh"

namespace tilewise::cuda::sm80 {

// The piece of a block: index and, for an axis that is not summed, the one part of it that is looked at.
struct F32BiasPiece {
    int64_t batch, head, row, key;
};

// First and end of an axis's units (sequences, heads, tiles) that reach piece `index`.
struct F32BiasRange {
    int64_t begin;
    int64_t end;
};
__device__ inline F32BiasRange reaching(int64_t size, int64_t index, int64_t count) {
    return size == 1 ? F32BiasRange{0, count} : F32BiasRange{index, min_of(index + 1, count)};
}

__device__ inline F32BiasPiece piece_of_block(const F32BiasParams& p) {
    int64_t block = blockIdx.x;
    F32BiasPiece piece;
    piece.key = block % p.num_tiles[1];
    block /= p.num_tiles[1];
    piece.row = block % p.num_tiles[0];
    block /= p.num_tiles[0];
    piece.head = block % p.size[1];
    piece.batch = block / p.size[1];
    return piece;
}

// sums += dS of the described queries and the keys from `key` on.
template <class T>
__device__ void add_grad_scores(float (&sums)[kF32Blocks][kF32Blocks], F32Shared& shared, const BackwardParams& params,
                                int32_t key) {
    const F32Thread thread;
    const F32Inputs<T> in(params);
    const F32Pairs<true> pairs{key};
    float products[kF32Blocks][kF32Blocks], dp[kF32Blocks][kF32Blocks];
    multiply(products, shared, in.q, shared.owner.first, in.k, shared.other.first);
    write_weights<F32Weight::kSigned>(shared, products, params.view, pairs);
    multiply(dp, shared, in.grad_o, shared.owner.second, in.v, shared.other.second);
    write_grad_scores(shared, dp, params.view, pairs);
#pragma unroll
    for (int e = 0; e < kF32Blocks * kF32Blocks; ++e)
        sums[e / kF32Blocks][e % kF32Blocks] += shared.weights[thread.weight(e)];
}

// Every tile of one head of one sequence that reaches the piece.
template <class T>
__device__ void add_head(float (&sums)[kF32Blocks][kF32Blocks], F32Shared& shared, const F32BiasParams& p,
                         const F32BiasPiece& piece, int32_t head) {
    const AttentionView& view = p.backward.view;
    const Sequence& s = shared.sequence.sequence;
    const auto head_kv = static_cast<int32_t>(head / view.sizes.gqa_ratio());
    const F32BiasRange rows = reaching(p.size[2], piece.row, ceil_div(s.seqlen_q, kF32Tile));
    const F32BiasRange keys = reaching(p.size[3], piece.key, ceil_div(s.seqlen_k, kF32Tile));
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        __syncthreads();
        describe_queries(shared.queries, shared.owner, view, shared.sequence, one_head_tile(s, head, row * kF32Tile),
                         p.backward.grad.o);
        add_statistics(shared, p.backward);
        for (int64_t tile = keys.begin; tile < keys.end; ++tile) {
            const auto key = static_cast<int32_t>(tile * kF32Tile);
            if (!sees_any(shared.queries, key)) continue;
            describe_keys(shared.other, view, shared.sequence, head_kv, key);
            add_grad_scores<T>(sums, shared, p.backward, key);
        }
    }
}

// Sums of the piece, in shared.weights -> grad_bias; one thread an element, which adds up the summed axes itself.
__device__ inline void store_bias(const F32BiasParams& p, const float* weights, const F32BiasPiece& piece) {
    const bool sums_rows = p.size[2] == 1, sums_keys = p.size[3] == 1;
    const int rows = sums_rows ? 1 : kF32Tile, keys = sums_keys ? 1 : kF32Tile;
    for (int e = static_cast<int>(threadIdx.x); e < rows * keys; e += kF32Threads) {
        const int row = e / keys, key = e % keys;
        const int64_t bias_row = piece.row * kF32Tile + row, bias_key = piece.key * kF32Tile + key;
        if (bias_row >= p.size[2] || bias_key >= p.size[3]) continue;
        float sum = 0.0f;
        for (int i = row; i < (sums_rows ? kF32Tile : row + 1); ++i)
            for (int j = key; j < (sums_keys ? kF32Tile : key + 1); ++j) sum += weights[i * kF32WeightPitch + j];
        store_real(p.grad_bias.data, p.grad_bias.dtype, p.grad_bias.offset(piece.batch, piece.head, bias_row, bias_key),
                   sum);
    }
}

template <class T>
__global__ void __launch_bounds__(kF32Threads, 2) sm80_f32_grad_bias(const __grid_constant__ F32BiasParams params) {
    F32Shared& shared = block_memory();
    const AttentionView& view = params.backward.view;
    const F32BiasPiece piece = piece_of_block(params);
    float sums[kF32Blocks][kF32Blocks] = {};
    const F32BiasRange batches = reaching(params.size[0], piece.batch, view.sizes.batch);
    const F32BiasRange heads = reaching(params.size[1], piece.head, view.sizes.num_heads_q);
    for (int64_t batch = batches.begin; batch < batches.end; ++batch) {
        __syncthreads();  // nobody reads the sequence before
        resolve_in_shared(shared, view, static_cast<int32_t>(batch));
        for (int64_t head = heads.begin; head < heads.end; ++head)
            add_head<T>(sums, shared, params, piece, static_cast<int32_t>(head));
    }
    const F32Thread thread;
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kF32Blocks * kF32Blocks; ++e)
        shared.weights[thread.weight(e)] = sums[e / kF32Blocks][e % kF32Blocks];
    __syncthreads();
    store_bias(params, shared.weights, piece);
}

template <class T> const void* f32_bias_entry() { return reinterpret_cast<const void*>(sm80_f32_grad_bias<T>); }

}  // namespace tilewise::cuda::sm80
