// The end of a block of the one-token decode: the warps' states become one (reference, sum, O) a row, which is the output where the keys are
// not split. Where they are, the parts meet through memory (the last block of a tile merges them) or, on GPUs with clusters of blocks, in
// shared memory: every block sends each other block a share of its columns, and finishes its own share of all parts.
//
// All sums have a fixed order: a result does not depend on which block or warp was the last.
#pragma once

#include "cuda/attend/elements.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/pairs.cuh"
#include "cuda/sm80/decode_token_stream.cuh"

namespace tilewise::cuda::sm80 {

__device__ __forceinline__ void add_scaled(float (&x)[4], float factor, float4 y) {
    x[0] += factor * y.x;
    x[1] += factor * y.y;
    x[2] += factor * y.z;
    x[3] += factor * y.w;
}

template <class Traits> struct TokenEnd {
    using Element = typename Traits::Element;
    static constexpr int kWarps = Traits::kShape.num_warps;
    static constexpr int kColumns = Traits::kShape.head_dim_v / 4;  // of four each
    const TokenParams& p;
    const TokenTile& t;
    unsigned char* shared;

    __device__ RowState* states() const { return reinterpret_cast<RowState*>(shared + Traits::kStatesOffset); }
    __device__ float* rows_of(int warp) const {
        return reinterpret_cast<float*>(shared + Traits::kRingsOffset + warp * Traits::kWarpBytes);
    }
    // This warp's rows to where the block reads them, as they are: O unscaled and lifted. Nothing is on its way to the warp's stages.
    __device__ __forceinline__ void publish(const DecodeWarp<Traits>& warp_rows) const {
        const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float sum = quad_sum(warp_rows.rows.row_sum[r]) * kUnlift<Element>;
            const int row = r * 8 + lane / 4;
            if (row >= t.num_rows) continue;
            if (lane % 4 == 0)
                states()[warp * kDecodeTileM + row] = {
                    scaled_reference<Element>(warp_rows.rows.reference[r], p.score_scale), sum};
            float* const to = rows_of(warp) + row * Traits::kOPitch + lane % 4 * 2;
#pragma unroll
            for (int v = 0; v < Traits::kVBlocks; ++v)
                *reinterpret_cast<float2*>(to + v * 8) = {warp_rows.o[0][v][2 * r], warp_rows.o[0][v][2 * r + 1]};
        }
    }
    // Four columns of the sum of all warps, relative to the returned state; still lifted.
    __device__ __forceinline__ RowState gather(int row, int column, float (&x)[4]) const {
        RowState state[kWarps];
        RowState all;
        all.reference = negative_infinity();
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            state[w] = states()[w * kDecodeTileM + row];
            all.reference = fmaxf(all.reference, state[w].reference);
        }
        const float shift = shift_of(all.reference);
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            const float factor = ptx::exp2(state[w].reference - shift);
            all.row_sum += factor * state[w].row_sum;
            add_scaled(x, factor, *reinterpret_cast<const float4*>(rows_of(w) + row * Traits::kOPitch + column));
        }
        return all;
    }

    __device__ __forceinline__ float sink_of(int row) const {
        return p.rows.sink == nullptr ? negative_infinity() : p.rows.sink[(t.first_head + row) * p.rows.sink_stride];
    }
    __device__ __forceinline__ void store_output(int row, int column, const float (&x)[4]) const {
        if (column >= p.v.num_columns) return;
        char* const to =
            p.rows.o + t.row * p.rows.o_row_bytes + (t.first_head + row) * p.rows.o_head_bytes + column * 2;
        store_floats<Element>(reinterpret_cast<Element*>(to), x);
    }
    // By the thread that has the row's first columns.
    __device__ __forceinline__ void store_lse(int row, int column, float lse) const {
        if (column == 0 && p.rows.lse != nullptr)
            p.rows.lse[t.row * p.rows.lse_row + (t.first_head + row) * p.rows.lse_head] = lse;
    }
    // x, relative to the state, is the sum over all of the row's keys.
    __device__ __forceinline__ void finish(int row, int column, float (&x)[4], RowState all) const {
        const FinishedRow finished = finish_row(all.reference, all.row_sum, sink_of(row), kUnlift<Element>);
#pragma unroll
        for (int c = 0; c < 4; ++c) x[c] *= finished.factor;
        store_output(row, column, x);
        store_lse(row, column, finished.lse);
    }

    __device__ __forceinline__ int64_t part_row(int row, int32_t part) const {
        const int32_t heads = p.work.gqa_ratio * static_cast<int32_t>(p.work.heads_kv.value);
        return part * p.parts.num_rows + int64_t{t.row} * heads + t.first_head + row;
    }
    __device__ __forceinline__ void store_part(int row, int column, float (&x)[4], RowState all) const {
        const FinishedRow finished = finish_row(all.reference, all.row_sum, negative_infinity(), kUnlift<Element>);
        const int64_t flat = part_row(row, t.split);
        if (column == 0 && p.parts.first_columns) p.parts.lse[flat] = finished.lse;
        if (column >= p.v.num_columns) return;
#pragma unroll
        for (int c = 0; c < 4; ++c) x[c] *= finished.factor;
        store_floats<float>(p.parts.o + flat * p.parts.row_floats + column, x);
    }
    // Up to eight parts from `first` on: all loads at once. Base-2 lse; -inf where there is no such part.
    __device__ __forceinline__ void load_parts(int row, int column, int32_t first, float (&lse)[8],
                                               float4 (&y)[8]) const {
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const int64_t flat = part_row(row, first + n);
            const bool exists = first + n < t.num_parts;
            lse[n] = exists ? __ldcg(p.parts.lse + flat) * kLog2E : negative_infinity();
            y[n] = exists && column < p.v.num_columns
                       ? __ldcg(reinterpret_cast<const float4*>(p.parts.o + flat * p.parts.row_floats + column))
                       : float4{};
        }
    }
    // The tile's parts, complete and visible -> the output.
    __device__ __forceinline__ void merge_parts() const {
#pragma unroll 1
        for (int i = static_cast<int>(threadIdx.x); i < t.num_rows * kColumns; i += Traits::kThreads) {
            const int row = i / kColumns, column = i % kColumns * 4;
            float top = sink_of(row) * kLog2E, sum = top == negative_infinity() ? 0.0f : 1.0f;
            float x[4] = {};
#pragma unroll 1
            for (int32_t first = 0; first < t.num_parts; first += 8) {
                float lse[8];
                float4 y[8];
                load_parts(row, column, first, lse, y);
                float now = top;
#pragma unroll
                for (int n = 0; n < 8; ++n) now = fmaxf(now, lse[n]);
                const float shift = shift_of(now), moved = ptx::exp2(top - shift);
                top = now;
                sum *= moved;
#pragma unroll
                for (int c = 0; c < 4; ++c) x[c] *= moved;
#pragma unroll
                for (int n = 0; n < 8; ++n) {
                    const float weight = ptx::exp2(lse[n] - shift);
                    if (weight == 0.0f) continue;  // an empty part may hold anything
                    sum += weight;
                    add_scaled(x, weight, y[n]);
                }
            }
            const float factor = inverse_sum(sum);
#pragma unroll
            for (int c = 0; c < 4; ++c) x[c] *= factor;
            store_output(row, column, x);
            store_lse(row, column, sum == 0.0f ? negative_infinity() : (shift_of(top) + ptx::log2(sum)) * kLn2);
        }
    }
};

// The merge in a cluster. Block r gets the columns [first_of(r), first_of(r + 1)) of every part, counted in fours.
template <class Traits> struct TokenCluster {
    static constexpr uint32_t kColumns = Traits::kShape.head_dim_v / 4;
    static constexpr uint32_t kBarrier = decode_cluster_offset(Traits::kSharedBytes);
    static constexpr uint32_t kStates = kBarrier + 16;
    const TokenParams& p;
    uint32_t base;  // of shared memory
    uint32_t size;  // blocks, at most kColumns
    uint32_t rank;

    __device__ __forceinline__ uint32_t owner(uint32_t column) const { return column * size / kColumns; }
    __device__ __forceinline__ uint32_t first_of(uint32_t r) const {
        return p.work.splits.divide(r * kColumns + size - 1);
    }
    __device__ __forceinline__ uint32_t state_at(uint32_t part, uint32_t row) const {
        return base + kStates + (part * kDecodeTileM + row) * 8;
    }
    // `column` counts from the owner's first, `width` is the largest number of columns of an owner.
    __device__ __forceinline__ uint32_t part_at(uint32_t part, uint32_t row, uint32_t column, uint32_t width) const {
        return base + kStates + size * kDecodeTileM * 8 + ((part * kDecodeTileM + row) * width + column) * 16;
    }
    // Early in a block: by the time of the merge the others have long started.
    __device__ __forceinline__ void open(int32_t num_rows) const {
        if (threadIdx.x == 0) {
            const uint32_t columns = first_of(rank + 1) - first_of(rank);
            ptx::mbarrier_init(base + kBarrier, 1);
            ptx::fence_barrier_init();
            ptx::mbarrier_expect_bytes(base + kBarrier, size * static_cast<uint32_t>(num_rows) * (columns * 16 + 8));
        }
        __syncwarp();
        ptx::cluster_arrive();
    }
    __device__ __forceinline__ void send(const TokenEnd<Traits>& end, uint32_t width) const {
        const uint32_t count = static_cast<uint32_t>(end.t.num_rows) * kColumns;
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < count; i += Traits::kThreads) {
            const uint32_t row = i / kColumns, column = i % kColumns;
            float x[4] = {};
            const RowState all = end.gather(static_cast<int>(row), static_cast<int>(column) * 4, x);
            const uint32_t to = owner(column), first = first_of(to);
            const uint32_t barrier = ptx::address_in_block(base + kBarrier, to);
            ptx::store_remote_16(ptx::address_in_block(part_at(rank, row, column - first, width), to),
                                 {x[0], x[1], x[2], x[3]}, barrier);
            if (column == first)
                ptx::store_remote_8(ptx::address_in_block(state_at(rank, row), to), {all.reference, all.row_sum},
                                    barrier);
        }
    }
    // Four columns of all parts, relative to the returned state.
    __device__ __forceinline__ RowState add_parts(uint32_t row, uint32_t column, uint32_t width, float (&x)[4]) const {
        RowState all;
        all.reference = negative_infinity();
#pragma unroll 4
        for (uint32_t n = 0; n < size; ++n)
            all.reference = fmaxf(all.reference, ptx::load_shared_floats(state_at(n, row)).x);
        const float shift = shift_of(all.reference);
#pragma unroll 4
        for (uint32_t n = 0; n < size; ++n) {
            const float2 state = ptx::load_shared_floats(state_at(n, row));
            const uint4 bits = ptx::load_shared_16(part_at(n, row, column, width));
            const float factor = ptx::exp2(state.x - shift);
            all.row_sum += factor * state.y;
            add_scaled(
                x, factor,
                {__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z), __uint_as_float(bits.w)});
        }
        return all;
    }
    // No block leaves before all that is meant for it has arrived, so nobody stores into a block that has gone.
    __device__ __forceinline__ void merge(const TokenEnd<Traits>& end) const {
        const uint32_t width = p.work.splits.divide(kColumns + size - 1);
        ptx::cluster_wait();  // the others have started
        send(end, width);
        ptx::mbarrier_wait(base + kBarrier, 0);
        const uint32_t first = first_of(rank), columns = first_of(rank + 1) - first;
        const uint32_t log = 32 - __clz(static_cast<int>(width - 1));
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < static_cast<uint32_t>(end.t.num_rows) << log; i += Traits::kThreads) {
            const uint32_t row = i >> log, column = i - (row << log);
            if (column >= columns) continue;
            float x[4] = {};
            const RowState all = add_parts(row, column, width, x);
            end.finish(static_cast<int>(row), static_cast<int>(first + column) * 4, x, all);
        }
    }
};

}  // namespace tilewise::cuda::sm80
