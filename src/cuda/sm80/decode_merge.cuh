// The end of a decode block: the warps' states become one (maximum, sum, O) a row, which is the output, or one part of it where the keys are
// split. The last block of a row tile to finish then merges the parts, so that a decode is one launch.
//
// Both merges add in a fixed order: a result does not depend on which block or warp was the last.
#pragma once

#include "cuda/attend/elements.cuh"
#include "cuda/attend/epilogue.cuh"
#include "cuda/attend/softmax_tile.cuh"
#include "cuda/sm80/decode_counter.cuh"
#include "cuda/sm80/decode_warp.cuh"

namespace tilewise::cuda::sm80 {

// The word of this block's row tile; null where its parts are merged by another launch, or there is one.
__device__ inline uint64_t* counter_of(const ForwardParams& params, int32_t num_parts) {
    if (num_parts == 1 || params.partial.counters == nullptr) return nullptr;
    return params.partial.counters + blockIdx.x / static_cast<uint32_t>(params.tiles.num_splits);
}

// Part `split` of a row.
__device__ inline float* part_of(const ForwardParams& params, const RowTile& t, int32_t row, int32_t split) {
    const int64_t flat = flat_row(t, row, params.partial.rows_per_batch, params.view.sizes.num_heads_q);
    return params.partial.o + (split * params.partial.num_rows + flat) * params.view.sizes.head_dim_v +
           params.dims.first_column_v;
}
__device__ inline float* part_lse_of(const ForwardParams& params, const RowTile& t, int32_t row, int32_t split) {
    return params.partial.lse + split * params.partial.num_rows +
           flat_row(t, row, params.partial.rows_per_batch, params.view.sizes.num_heads_q);
}

// Four columns, as far as they exist.
template <class Element>
__device__ inline void store_output(const ForwardParams& params, const RowTile& t, int32_t row, int column,
                                    const float (&x)[4]) {
    const HeadTensor& o = params.view.o;
    Element* const to = static_cast<Element*>(o.data) +
                        o.offset(t.sequence.q_batch, t.sequence.q_row + t.query_of(row), t.head_of(row)) +
                        (params.dims.first_column_v + column) * o.dim_stride;
    if (params.dims.vector_o) {
        store_floats<Element>(to, x);
        return;
    }
#pragma unroll
    for (int c = 0; c < 4; ++c)
        if (column + c < params.dims.head_dim_v) to[c * o.dim_stride] = tilewise::Element<Element>::store(x[c]);
}
__device__ inline bool has_vector_parts(const ForwardParams& params) { return params.view.sizes.head_dim_v % 4 == 0; }
__device__ inline void store_part(const ForwardParams& params, const RowTile& t, int32_t row, int column,
                                  const float (&x)[4]) {
    float* const to = part_of(params, t, row, t.split) + column;
    if (has_vector_parts(params)) {
        store_floats<float>(to, x);
        return;
    }
#pragma unroll
    for (int c = 0; c < 4; ++c)
        if (column + c < params.dims.head_dim_v) to[c] = x[c];
}

template <class Traits> struct DecodeMerge {
    static constexpr int kWarps = Traits::kShape.num_warps;
    static constexpr int kColumns = Traits::kShape.head_dim_v / 4;  // of four each
    using Element = typename Traits::Element;
    using Accumulators = float[1][Traits::kVBlocks][4];
    const ForwardParams& params;
    const RowTile& t;
    unsigned char* shared;

    __device__ RowState* states() const { return reinterpret_cast<RowState*>(shared + Traits::kStatesOffset); }
    __device__ float* factors() const { return reinterpret_cast<float*>(shared + Traits::kFactorsOffset); }
    __device__ float* rows_of(int warp) const {
        return reinterpret_cast<float*>(shared + Traits::kRingsOffset + warp * Traits::kWarpBytes);
    }
    __device__ float top_of(int row) const {
        float top = states()[row].reference;
#pragma unroll
        for (int w = 1; w < kWarps; ++w) top = fmaxf(top, states()[w * kDecodeTileM + row].reference);
        return top;
    }

    // One thread a row: the row's factor, and its lse.
    __device__ void finish_row_of(int32_t row, bool is_part) const {
        const float top = top_of(row), shift = shift_of(top);
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            const RowState state = states()[w * kDecodeTileM + row];
            sum += state.row_sum * ptx::exp2(state.reference - shift);
        }
        const FinishedRow finished =
            finish_row(top, sum, is_part ? negative_infinity() : params.view.sink_of(t.head_of(row)), 1.0f);
        factors()[row] = finished.factor;
        if (is_part) {
            if (params.dims.first_column_v == 0) *part_lse_of(params, t, row, t.split) = finished.lse;
        } else {
            store_row_lse(row, finished.lse);
        }
    }
    __device__ void store_row_lse(int32_t row, float lse) const {
        const RowTensor& to = params.view.lse;
        if (params.dims.first_column_v > 0 || !to.given()) return;
        static_cast<float*>(
            to.data)[to.offset(t.sequence.q_batch, t.head_of(row), t.sequence.q_row + t.query_of(row))] = lse;
    }

    // Every warp is through with its tiles; nothing is on its way to them.
    __device__ __forceinline__ void merge_warps(const Accumulators& o, const SoftmaxRows<Element, 1>& rows,
                                                bool is_part) const {
        const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float sum = quad_sum(rows.row_sum[r]) * kUnlift<Element>;
            if (lane % 4 == 0)
                states()[warp * kDecodeTileM + r * 8 + lane / 4] = {
                    scaled_reference<Element>(rows.reference[r], params.score_scale), sum};
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = r * 8 + lane / 4;
            const float factor =
                ptx::exp2(scaled_reference<Element>(rows.reference[r], params.score_scale) - shift_of(top_of(row))) *
                kUnlift<Element>;
            float* const to = rows_of(warp) + row * Traits::kOPitch + lane % 4 * 2;
#pragma unroll
            for (int v = 0; v < Traits::kVBlocks; ++v)
                *reinterpret_cast<float2*>(to + v * 8) = {o[0][v][2 * r] * factor, o[0][v][2 * r + 1] * factor};
        }
        for (int row = static_cast<int>(threadIdx.x); row < t.num_rows; row += Traits::kThreads)
            finish_row_of(row, is_part);
        __syncthreads();
#pragma unroll 1
        for (int i = static_cast<int>(threadIdx.x); i < t.num_rows * kColumns; i += Traits::kThreads) {
            const int row = i / kColumns, column = i % kColumns * 4;
            if (column >= params.dims.head_dim_v) continue;
            float x[4] = {};
#pragma unroll
            for (int w = 0; w < kWarps; ++w) {
                const float4 part = *reinterpret_cast<const float4*>(rows_of(w) + row * Traits::kOPitch + column);
                x[0] += part.x, x[1] += part.y, x[2] += part.z, x[3] += part.w;
            }
            const float factor = factors()[row];
#pragma unroll
            for (int c = 0; c < 4; ++c) x[c] *= factor;
            if (is_part)
                store_part(params, t, row, column, x);
            else
                store_output<typename Traits::Element>(params, t, row, column, x);
        }
    }

    // The weights of a row's parts, and its lse: one warp.
    __device__ void weigh_parts(int32_t row, int32_t count, float* weights) const {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const float* const lse = part_lse_of(params, t, row, 0);
        const float sink = params.view.sink_of(t.head_of(row));
        float top = sink;
        for (int32_t n = lane; n < count; n += 32) top = fmaxf(top, __ldcg(lse + n * params.partial.num_rows));
        for (int distance = 16; distance > 0; distance /= 2)
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, distance));
        const float shift = shift_of(top);
        float sum = 0.0f;
        for (int32_t n = lane; n < count; n += 32) {
            const float weight = ptx::exp2((__ldcg(lse + n * params.partial.num_rows) - shift) * kLog2E);
            weights[n] = weight;
            sum += weight;
        }
        sum = sum_of_lanes(sum, 32) + ptx::exp2((sink - shift) * kLog2E);
        for (int32_t n = lane; n < count; n += 32) weights[n] *= inverse_sum(sum);
        if (lane == 0) store_row_lse(row, sum == 0.0f ? negative_infinity() : shift + ptx::log2(sum) * kLn2);
    }
    __device__ static float4 load_part(const float* from, bool vector, int left) {
        if (vector) return __ldcg(reinterpret_cast<const float4*>(from));
        return {__ldcg(from), left > 1 ? __ldcg(from + 1) : 0.0f, left > 2 ? __ldcg(from + 2) : 0.0f,
                left > 3 ? __ldcg(from + 3) : 0.0f};
    }

    // Parts [0, count) of the tile's rows, complete and visible -> the output.
    __device__ void merge_parts(int32_t count) const {
        float* const weights = rows_of(0);
        for (int row = static_cast<int>(threadIdx.x) / 32; row < t.num_rows; row += kWarps)
            weigh_parts(row, count, weights + row * count);
        __syncthreads();
        const bool vector = has_vector_parts(params);
        const int64_t stride = params.partial.num_rows * params.view.sizes.head_dim_v;
#pragma unroll 1
        for (int i = static_cast<int>(threadIdx.x); i < t.num_rows * kColumns; i += Traits::kThreads) {
            const int row = i / kColumns, column = i % kColumns * 4;
            if (column >= params.dims.head_dim_v) continue;
            const float* const part = part_of(params, t, row, 0) + column;
            float x[4] = {};
#pragma unroll 8
            for (int32_t n = 0; n < count; ++n) {
                const float4 y = load_part(part + n * stride, vector, params.dims.head_dim_v - column);
                const float weight = weights[row * count + n];
                if (weight == 0.0f) continue;  // an empty part may hold anything
                x[0] += weight * y.x, x[1] += weight * y.y, x[2] += weight * y.z, x[3] += weight * y.w;
            }
            store_output<typename Traits::Element>(params, t, row, column, x);
        }
    }
};

}  // namespace tilewise::cuda::sm80
