// Forward attention on CUDA cores: q, k, v -> o, lse, or f32 partial results of one range of keys. Tiles as in f32_tile.cuh; the
// online softmax's state lies in shared memory, a maximum and a sum a row.
#pragma once

#include "cuda/sm80/f32_rows.cuh"
#include "math/online_softmax.hpp"

namespace tilewise::cuda::sm80 {

// Reductions over the 16 threads that share a row.
__device__ __forceinline__ float max_of_row(float x) {
#pragma unroll
    for (int distance = 8; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
    return x;
}
__device__ __forceinline__ float sum_of_row(float x) {
#pragma unroll
    for (int distance = 8; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

// Threads 0..63 begin a row each.
__device__ inline void clear_softmax(F32Shared& shared) {
    if (threadIdx.x >= kF32Tile) return;
    shared.row_max[threadIdx.x] = negative_infinity();
    shared.row_sum[threadIdx.x] = 0.0f;
}

// Scores in shared.weights -> probabilities relative to the new maximum, in place; `out` follows it. A row's state is read and written by
// the half warp that has the row.
template <int kColumns> __device__ __forceinline__ void softmax_step(F32Shared& shared, F32Output<kColumns>& out) {
    const F32Thread thread;
#pragma unroll
    for (int i = 0; i < kF32Blocks; ++i) {
        float* const row = shared.weights + thread.row(i) * kF32WeightPitch + thread.tx;
        float s[kF32Blocks];
#pragma unroll
        for (int j = 0; j < kF32Blocks; ++j) s[j] = row[16 * j];
        // fmaxf drops a NaN score, but its exponential does not.
        const float top = max_of_row(fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3])));
        const float old_max = shared.row_max[thread.row(i)];
        const float new_max = fmaxf(old_max, top);
        const float shift = shift_of(new_max);
        const float moved = expf(old_max - shift);
        float sum = 0.0f;
        out.scale_row(i, moved);
#pragma unroll
        for (int j = 0; j < kF32Blocks; ++j) {
            s[j] = expf(s[j] - shift);
            sum += s[j];
            row[16 * j] = s[j];
        }
        sum = shared.row_sum[thread.row(i)] * moved + sum_of_row(sum);
        __syncwarp();
        if (thread.tx == 0) {
            shared.row_max[thread.row(i)] = new_max;
            shared.row_sum[thread.row(i)] = sum;
        }
    }
}

// Raw products of this thread -> scores in shared memory. A rolled loop: the modifiers are long, and used once an element.
__device__ inline void write_scores(F32Shared& shared, const float (&products)[kF32Blocks][kF32Blocks],
                                    const AttentionView& view, const F32Sequence& s, int32_t first_key) {
    const F32Thread thread;
#pragma unroll
    for (int e = 0; e < kF32Blocks * kF32Blocks; ++e)
        shared.weights[thread.weight(e)] = products[e / kF32Blocks][e % kF32Blocks];
#pragma unroll 1
    for (int e = 0; e < kF32Blocks * kF32Blocks; ++e) {
        float& weight = shared.weights[thread.weight(e)];
        const int row = thread.row(e / kF32Blocks);
        weight = score_of(view, s, shared.queries, row, first_key + thread.column(e % kF32Blocks), weight).score;
    }
}

// Probabilities that dropout does not keep become 0; the factor of the others comes at the end.
__device__ inline void drop(F32Shared& shared, const AttentionView& view, const F32Sequence& s, int32_t first_key) {
    if (view.score.dropout.threshold == 0) return;
    const F32Thread thread;
#pragma unroll 1
    for (int e = 0; e < kF32Blocks * kF32Blocks; ++e)
        if (!keeps(view, s, shared.queries, thread.row(e / kF32Blocks), first_key + thread.column(e % kF32Blocks)))
            shared.weights[thread.weight(e)] = 0.0f;
}

template <class T, int kColumns>
__device__ void store_forward(const ForwardParams& params, const F32Shared& shared, const F32Sequence& s, int32_t split,
                              const F32Output<kColumns>& out) {
    const F32Thread thread;
    const AttentionView& view = params.view;
    const HeadDims& dims = params.dims;
    const bool partial = params.tiles.num_splits > 1;
#pragma unroll
    for (int i = 0; i < kF32Blocks; ++i) {
        const int row = thread.row(i);
        if (shared.owner.second[row] < 0) continue;
        const float row_max = shared.row_max[row], row_sum = shared.row_sum[row];
        const int32_t head = shared.queries.head[row];
        const int64_t q_row = s.sequence.q_row + shared.queries.query[row];
        const float sink = partial ? negative_infinity() : view.sink_of(head);
        const float top = fmaxf(row_max, sink), shift = shift_of(top);
        const float moved = expf(row_max - shift);
        const float sum = row_sum * moved + expf(sink - shift);
        const float lse = sum == 0.0f ? negative_infinity() : top + logf(sum);
        const float factor = inverse_sum(sum) * (row_sum == 0.0f ? 0.0f : moved) * view.score.dropout.keep_scale;
        const bool writes_lse = thread.tx == 0 && dims.first_column_v == 0;
        if (partial) {
            const int64_t flat =
                (s.sequence.q_batch * params.partial.rows_per_batch + q_row) * view.sizes.num_heads_q + head;
            const int64_t at = split * params.partial.num_rows + flat;
            if (writes_lse) params.partial.lse[at] = lse;
            store_row<float>(out, i, factor, params.partial.o + at * view.sizes.head_dim_v + dims.first_column_v,
                             F32Operand<float>{nullptr, 1, dims.head_dim_v, view.sizes.head_dim_v % 4 == 0});
        } else {
            if (writes_lse && view.lse.given())
                static_cast<float*>(view.lse.data)[view.lse.offset(s.sequence.q_batch, head, q_row)] = lse;
            T* const to =
                static_cast<T*>(view.o.data) + shared.owner.second[row] + dims.first_column_v * view.o.dim_stride;
            store_row<T>(out, i, factor, to, operand_of<T>(view.o, dims.head_dim_v, dims.vector_o));
        }
    }
}

template <class T, int kColumns>
__global__ void __launch_bounds__(kF32Threads, kColumns == 256 ? 1 : 2)
    sm80_f32_forward(const __grid_constant__ ForwardParams params) {
    F32Shared& shared = block_memory();
    const AttentionView& view = params.view;
    const F32Place place = f32_place(params.tiles, view.sequences.cu_seqlens_q);
    resolve_in_shared(shared, view, place.batch);
    const F32Sequence& s = shared.sequence;
    const int64_t rows_of_tile = params.tiles.tile_m / params.tiles.packed_heads * params.tiles.packed_heads;
    F32QueryTile tile;
    tile.packed_heads = params.tiles.packed_heads;
    tile.first_head = place.head * params.tiles.packed_heads;
    tile.first_row = place.tile * rows_of_tile;
    tile.num_rows = min_of(rows_of_tile, int64_t{s.sequence.seqlen_q} * tile.packed_heads - tile.first_row);
    if (tile.num_rows <= 0) return;
    const auto head_kv = static_cast<int32_t>(tile.first_head / view.sizes.gqa_ratio());

    describe_queries(shared.queries, shared.owner, view, s, tile, view.o);
    clear_softmax(shared);
    const Interval visited = visited_tiles(shared);
    const int64_t count = visited.end - visited.begin, num_splits = params.tiles.num_splits;
    const auto first_key = static_cast<int32_t>((visited.begin + count * place.split / num_splits) * kF32Tile);
    const auto end_key = static_cast<int32_t>((visited.begin + count * (place.split + 1) / num_splits) * kF32Tile);

    const F32Operand<T> q = operand_of<T>(view.q, params.dims.head_dim, params.dims.vector_q);
    const F32Operand<T> k = operand_of<T>(view.k, params.dims.head_dim, params.dims.vector_k);
    F32Operand<T> v = operand_of<T>(view.v, params.dims.head_dim_v, params.dims.vector_v);
    v.data += params.dims.first_column_v * v.dim_stride;
    F32Output<kColumns> out;
    out.clear();
    for (int32_t key = first_key; key < end_key; key += kF32Tile) {
        if (!sees_any(shared.queries, key)) continue;
        describe_keys(shared.other, view, s, head_kv, key);
        float products[kF32Blocks][kF32Blocks];
        multiply(products, shared, q, shared.owner.first, k, shared.other.first);
        write_scores(shared, products, view, s, key);
        softmax_step(shared, out);
        drop(shared, view, s, key);
        add_sums(out, shared, v, shared.other.second);
    }
    __syncthreads();
    store_forward<T>(params, shared, s, place.split, out);
}

template <class T> const void* f32_forward_entry(int columns) {
    if (columns <= 64) return reinterpret_cast<const void*>(sm80_f32_forward<T, 64>);
    if (columns <= 128) return reinterpret_cast<const void*>(sm80_f32_forward<T, 128>);
    return reinterpret_cast<const void*>(sm80_f32_forward<T, 256>);
}

}  // namespace tilewise::cuda::sm80
