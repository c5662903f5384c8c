// Backward attention on CUDA cores: q, k, v, lse, grad_o, delta -> one of grad_q, grad_k, grad_v, grad_bias. With s the score of a pair,
// D dropout's factor (0 or 1 / (1 - p)), c the derivative of softcap:
//
//   P = exp(s - lse);   dS = P (D dO.v - delta);   dV += D P dO;   dK += c dS q;   dQ += c dS k;   dBias += dS
//
// Each gradient is a kernel of its own whose blocks own 64 of its rows and compute S and dP again: eight products instead of five, and
// in return every sum lives in registers of one block, in a fixed order, without atomics or memory. So all are bitwise repeatable.
#pragma once

#include "cuda/sm80/f32_rows.cuh"

namespace tilewise::cuda::sm80 {

// lse and delta of the described queries; a row whose every score was -inf has no probabilities to differentiate. The same threads as
// in describe_queries, one row each, so no barrier lies between.
__device__ inline void add_statistics(F32Shared& shared, const BackwardParams& params) {
    const int row = static_cast<int>(threadIdx.x);
    if (row >= kF32Tile || is_empty(shared.queries.keys[row])) return;
    const AttentionView& view = params.view;
    const Sequence& s = shared.sequence.sequence;
    const int64_t head = shared.queries.head[row], q_row = s.q_row + shared.queries.query[row];
    const float lse = static_cast<const float*>(view.lse.data)[view.lse.offset(s.q_batch, head, q_row)];
    shared.queries.lse[row] = lse;
    shared.queries.delta[row] = params.scratch.delta[params.scratch.value_index(view.sizes, s.q_batch, head, q_row)];
    if (lse == negative_infinity()) shared.queries.keys[row] = {};
}

// How the elements of a tile of weights are found: which index counts queries, and where its keys begin.
template <bool kOwnsQueries> struct F32Pairs {
    int32_t first_key;
    __device__ int query(int owner, int other) const { return kOwnsQueries ? owner : other; }
    __device__ int32_t key(int owner, int other) const { return first_key + (kOwnsQueries ? other : owner); }
};

enum class F32Weight {
    kDropped,        // D P
    kSigned,         // P, negative where dropout drops it
    kSignedProduct,  // c P, negative where dropout drops it
};

// Raw products of this thread -> weights in shared memory.
template <F32Weight kWeight, class Pairs>
__device__ inline void write_weights(F32Shared& shared, const float (&products)[kF32Blocks][kF32Blocks],
                                     const AttentionView& view, Pairs pairs) {
    const F32Thread thread;
#pragma unroll
    for (int e = 0; e < kF32Blocks * kF32Blocks; ++e)
        shared.weights[thread.weight(e)] = products[e / kF32Blocks][e % kF32Blocks];
#pragma unroll 1
    for (int e = 0; e < kF32Blocks * kF32Blocks; ++e) {
        float& weight = shared.weights[thread.weight(e)];
        const int owner = thread.row(e / kF32Blocks), other = thread.column(e % kF32Blocks);
        const int query = pairs.query(owner, other);
        const int32_t key = pairs.key(owner, other);
        const F32Score score = score_of(view, shared.sequence, shared.queries, query, key, weight);
        if (score.score == negative_infinity()) {
            weight = 0.0f;
            continue;
        }
        const float p = expf(score.score - shared.queries.lse[query]);
        const bool kept = keeps(view, shared.sequence, shared.queries, query, key);
        if constexpr (kWeight == F32Weight::kDropped)
            weight = kept ? p * view.score.dropout.keep_scale : 0.0f;
        else
            weight = (kept ? p : -p) * (kWeight == F32Weight::kSignedProduct ? score.derivative : 1.0f);
    }
}

// A signed weight and dO.v -> dS. Where the weight is 0 the value may be one that the row does not see: it is not looked at.
__device__ __forceinline__ float grad_score(float weight, float dp, float keep_scale, float delta) {
    const float grad_p = signbit(weight) ? 0.0f : dp * keep_scale;
    return weight == 0.0f ? 0.0f : fabsf(weight) * (grad_p - delta);
}

// Signed weights -> dS, in place.
template <class Pairs>
__device__ inline void write_grad_scores(F32Shared& shared, const float (&dp)[kF32Blocks][kF32Blocks],
                                         const AttentionView& view, Pairs pairs) {
    const F32Thread thread;
#pragma unroll
    for (int i = 0; i < kF32Blocks; ++i)
#pragma unroll
        for (int j = 0; j < kF32Blocks; ++j) {
            float& weight = shared.weights[thread.weight(kF32Blocks * i + j)];
            const float delta = shared.queries.delta[pairs.query(thread.row(i), thread.column(j))];
            weight = grad_score(weight, dp[i][j], view.score.dropout.keep_scale, delta);
        }
}

// The four tensors that tiles are made of.
template <class T> struct F32Inputs {
    F32Operand<T> q, k, v, grad_o;
    __device__ explicit F32Inputs(const BackwardParams& p)
        : q(operand_of<T>(p.view.q, static_cast<int32_t>(p.view.sizes.head_dim), p.dims.vector_q)),
          k(operand_of<T>(p.view.k, static_cast<int32_t>(p.view.sizes.head_dim), p.dims.vector_k)),
          v(operand_of<T>(p.view.v, static_cast<int32_t>(p.view.sizes.head_dim_v), p.dims.vector_v)),
          grad_o(operand_of<T>(p.grad.o, static_cast<int32_t>(p.view.sizes.head_dim_v), p.dims.vector_o)) {}
};

__device__ inline F32QueryTile one_head_tile(const Sequence& s, int32_t head, int64_t first_row) {
    F32QueryTile tile;
    tile.first_head = head;
    tile.first_row = first_row;
    tile.num_rows = min_of<int64_t>(kF32Tile, s.seqlen_q - first_row);
    return tile;
}

// Rows of the output -> a gradient. `rows`: where they begin in it.
template <class T, int kColumns>
__device__ void store_gradient(const F32Output<kColumns>& out, const HeadTensor& to, const int64_t (&rows)[kF32Blocks],
                               F32Operand<T> form, float factor) {
#pragma unroll
    for (int i = 0; i < kF32Blocks; ++i)
        if (rows[i] >= 0) store_row<T>(out, i, factor, static_cast<T*>(to.data) + rows[i], form);
}

template <class T, int kColumns>
__global__ void __launch_bounds__(kF32Threads, kColumns == 256 ? 1 : 2)
    sm80_f32_grad_q(const __grid_constant__ BackwardParams params) {
    F32Shared& shared = block_memory();
    const AttentionView& view = params.view;
    const F32Place place = f32_place(params.tiles, view.sequences.cu_seqlens_q);
    resolve_in_shared(shared, view, place.batch);
    const Sequence& s = shared.sequence.sequence;
    const F32QueryTile tile = one_head_tile(s, place.head, place.tile * kF32Tile);
    if (tile.num_rows <= 0) return;
    describe_queries(shared.queries, shared.owner, view, shared.sequence, tile, params.grad.o);
    add_statistics(shared, params);
    const Interval visited = visited_tiles(shared);
    const auto head_kv = static_cast<int32_t>(place.head / view.sizes.gqa_ratio());

    F32Output<kColumns> out;
    out.clear();
    for (int32_t key = visited.begin * kF32Tile; key < visited.end * kF32Tile; key += kF32Tile) {
        if (!sees_any(shared.queries, key)) continue;
        describe_keys(shared.other, view, shared.sequence, head_kv, key);
        const F32Inputs<T> in(params);
        const F32Pairs<true> pairs{key};
        float products[kF32Blocks][kF32Blocks], dp[kF32Blocks][kF32Blocks];
        multiply(products, shared, in.q, shared.owner.first, in.k, shared.other.first);
        write_weights<F32Weight::kSignedProduct>(shared, products, view, pairs);
        multiply(dp, shared, in.grad_o, shared.owner.second, in.v, shared.other.second);
        write_grad_scores(shared, dp, view, pairs);
        add_sums(out, shared, in.k, shared.other.first);
    }
    const F32Thread thread;
    int64_t rows[kF32Blocks];
#pragma unroll
    for (int i = 0; i < kF32Blocks; ++i)
        rows[i] = thread.row(i) < tile.num_rows
                      ? params.grad.q.offset(s.q_batch, s.q_row + tile.first_row + thread.row(i), place.head)
                      : -1;
    const F32Operand<T> form = operand_of<T>(params.grad.q, static_cast<int32_t>(view.sizes.head_dim), false);
    store_gradient(out, params.grad.q, rows, form, view.score.softmax_scale);
}

// grad_k, or columns [first_column_v, first_column_v + head_dim_v) of grad_v.
template <class T, int kColumns, bool kOfKeys>
__global__ void __launch_bounds__(kF32Threads, kColumns == 256 ? 1 : 2)
    sm80_f32_grad_kv(const __grid_constant__ BackwardParams params) {
    F32Shared& shared = block_memory();
    const AttentionView& view = params.view;
    const F32Place place = f32_place(params.tiles, view.sequences.cu_seqlens_k);
    resolve_in_shared(shared, view, place.batch);
    const Sequence& s = shared.sequence.sequence;
    const int64_t left = s.seqlen_k - place.tile * kF32Tile;
    if (left <= 0) return;
    const auto first_key = static_cast<int32_t>(place.tile * kF32Tile);
    const auto end_key = static_cast<int32_t>(first_key + min_of<int64_t>(left, kF32Tile));
    describe_keys(shared.owner, view, shared.sequence, place.head, first_key);
    const Interval visiting = visiting_rows(shared.sequence.mask, s.seqlen_q, {first_key, end_key});
    const auto ratio = static_cast<int32_t>(view.sizes.gqa_ratio());

    F32Output<kColumns> out;
    out.clear();
    for (int32_t head = place.head * ratio; head < (place.head + 1) * ratio; ++head)
        for (int32_t row = visiting.begin / kF32Tile * kF32Tile; row < visiting.end; row += kF32Tile) {
            describe_queries(shared.queries, shared.other, view, shared.sequence, one_head_tile(s, head, row),
                             params.grad.o);
            add_statistics(shared, params);
            if (!sees_any(shared.queries, first_key)) continue;
            const F32Inputs<T> in(params);
            const F32Pairs<false> pairs{first_key};
            float products[kF32Blocks][kF32Blocks];
            multiply(products, shared, in.k, shared.owner.first, in.q, shared.other.first);
            if constexpr (kOfKeys) {
                write_weights<F32Weight::kSignedProduct>(shared, products, view, pairs);
                float dp[kF32Blocks][kF32Blocks];
                multiply(dp, shared, in.v, shared.owner.second, in.grad_o, shared.other.second);
                write_grad_scores(shared, dp, view, pairs);
                add_sums(out, shared, in.q, shared.other.first);
            } else {
                write_weights<F32Weight::kDropped>(shared, products, view, pairs);
                F32Operand<T> grad_o = in.grad_o;
                grad_o.data += params.dims.first_column_v * grad_o.dim_stride;
                grad_o.dim = params.dims.head_dim_v;
                add_sums(out, shared, grad_o, shared.other.second);
            }
        }
    const F32Thread thread;
    const HeadTensor& to = kOfKeys ? params.grad.k : params.grad.v;
    int64_t rows[kF32Blocks];
#pragma unroll
    for (int i = 0; i < kF32Blocks; ++i) {
        rows[i] = -1;
        if (thread.row(i) >= left) continue;
        rows[i] = to.offset(s.k_batch, s.first_key + first_key + thread.row(i), place.head);
        if constexpr (!kOfKeys) rows[i] += params.dims.first_column_v * to.dim_stride;
    }
    const auto dim = kOfKeys ? static_cast<int32_t>(view.sizes.head_dim) : params.dims.head_dim_v;
    store_gradient(out, to, rows, operand_of<T>(to, dim, false), kOfKeys ? view.score.softmax_scale : 1.0f);
}

template <class T, int kColumns> const void* f32_gradient_entry(F32Gradient gradient) {
    switch (gradient) {
    case F32Gradient::kQuery: return reinterpret_cast<const void*>(sm80_f32_grad_q<T, kColumns>);
    case F32Gradient::kKey: return reinterpret_cast<const void*>(sm80_f32_grad_kv<T, kColumns, true>);
    default: return reinterpret_cast<const void*>(sm80_f32_grad_kv<T, kColumns, false>);
    }
}
template <class T> const void* f32_backward_entry(F32Gradient gradient, int columns) {
    if (columns <= 64) return f32_gradient_entry<T, 64>(gradient);
    return columns <= 128 ? f32_gradient_entry<T, 128>(gradient) : f32_gradient_entry<T, 256>(gradient);
}

}  // namespace tilewise::cuda::sm80
