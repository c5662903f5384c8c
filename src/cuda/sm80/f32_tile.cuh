// Attention with plain fused multiply-adds, for fp32 tensors and as the kernel that serves whatever the tensor-core rows do not: any strides,
// any alignment, any head dimension, O(N) memory.
//
// A block of 256 threads owns 64 rows (of queries in a forward and for dQ, of keys for dK and dV) and walks over tiles of 64 rows of the
// other side. Two kinds of product:
//
//   products  (64 owner rows x 64 other rows) = owner (64 x dim) . other (64 x dim)^T: both operands pass through shared memory 32
//             columns at a time, so nothing depends on the head dimension. Thread (tx, ty) has rows ty + 16 i, columns tx + 16 j.
//   sums      out (64 x columns) += weights (64 x 64, shared) . other (64 x columns): 16 KB of the other's rows at a time. Thread
//             (tx, ty) has rows ty + 16 i, columns 64 c + 4 tx + e. A row of weights is written and read by one half warp.
//
// Pitches of 36 and 68 floats make every access of 16 bytes a lane free of bank conflicts. Shared memory: 18 KB of staging, 17 KB of
// weights, 3 KB of row descriptions: static, so that it runs everywhere. Every sum has one owner and a fixed order: no atomics.
#pragma once

#include "cuda/attend/elements.cuh"
#include "cuda/sm80/f32_params.hpp"

namespace tilewise::cuda::sm80 {

constexpr int kF32Depth = 32;
constexpr int kF32Pitch = kF32Depth + 4;
constexpr int kF32WeightPitch = kF32Tile + 4;
constexpr int kF32Blocks = 4;  // rows of a thread, and columns of its products

// Where 64 rows begin in two tensors, in elements: q or k, and o, grad_o or v. Negative: there is no such row.
struct F32Rows {
    int64_t first[kF32Tile];
    int64_t second[kF32Tile];
};

// What a score needs to know of 64 query rows.
struct F32Queries {
    Interval keys[kF32Tile];  // empty where the row does not exist or sees nothing
    int32_t query[kF32Tile];
    int32_t head[kF32Tile];
    float lse[kF32Tile];
    float delta[kF32Tile];
};

// A sequence of the batch, resolved once a block. In shared memory: it is read seldom, and registers are short.
struct F32Sequence {
    int32_t batch;
    Sequence sequence;
    IntervalMask mask;
};

struct F32Shared {
    alignas(16) float stage[2 * kF32Tile * kF32Pitch];
    alignas(16) float weights[kF32Tile * kF32WeightPitch];
    F32Rows owner;
    F32Rows other;
    F32Queries queries;
    F32Sequence sequence;
    float row_max[kF32Tile];  // of the online softmax
    float row_sum[kF32Tile];
    int32_t visit[2];  // keys that some row of the tile sees
};
// Of the block, in raw memory, since shared variables are never initialised.
__device__ inline F32Shared& block_memory() {
    alignas(16) __shared__ unsigned char bytes[sizeof(F32Shared)];
    return *reinterpret_cast<F32Shared*>(bytes);
}

struct F32Thread {
    int tx = static_cast<int>(threadIdx.x) % 16;
    int ty = static_cast<int>(threadIdx.x) / 16;
    __device__ int row(int i) const { return ty + 16 * i; }
    __device__ int column(int j) const { return tx + 16 * j; }
    // Element e (0..15) of this thread in the weights.
    __device__ int weight(int e) const { return row(e / kF32Blocks) * kF32WeightPitch + column(e % kF32Blocks); }
};

template <class T> struct F32Operand {
    const T* data;
    int64_t dim_stride;
    int32_t dim;
    bool vector;  // whole pieces of 4 columns, aligned for one access each
};
template <class T> __device__ F32Operand<T> operand_of(const HeadTensor& tensor, int32_t dim, bool vector) {
    return {static_cast<const T*>(tensor.data), tensor.dim_stride, dim, vector};
}

// Columns first .. first + 3 of a row; zeros past the operand's last one.
template <class T> __device__ __forceinline__ float4 load_four(const F32Operand<T>& from, int64_t offset, int first) {
    float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const T* const at = from.data + offset + first * from.dim_stride;
    if (from.vector && first < from.dim) {
        if constexpr (sizeof(T) == 4) {
            return *reinterpret_cast<const float4*>(at);
        } else {
            alignas(8) T elements[4];
            *reinterpret_cast<uint2*>(elements) = *reinterpret_cast<const uint2*>(at);
#pragma unroll
            for (int i = 0; i < 4; ++i) x[i] = Element<T>::load(elements[i]);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (first + i < from.dim) x[i] = Element<T>::load(at[i * from.dim_stride]);
    }
    return {x[0], x[1], x[2], x[3]};
}

// `rows` rows of `offsets`, kColumns columns from `first_column` on, to shared memory row by row.
template <int kColumns, int kPitch, class T>
__device__ __forceinline__ void stage_rows(float* to, const F32Operand<T>& from, const int64_t* offsets, int rows,
                                           int first_column) {
    constexpr int kPieces = kColumns / 4;
    const int column = static_cast<int>(threadIdx.x) % kPieces * 4;
#pragma unroll 2
    for (int row = static_cast<int>(threadIdx.x) / kPieces; row < rows; row += kF32Threads / kPieces) {
        const int64_t offset = offsets[row];
        const float4 x = offset >= 0 ? load_four(from, offset, first_column + column) : float4{};
        *reinterpret_cast<float4*>(to + row * kPitch + column) = x;
    }
}

__device__ __forceinline__ float4 load_shared(const float* at) { return *reinterpret_cast<const float4*>(at); }

// products[i][j] = owner row (ty + 16 i) . other row (tx + 16 j). Begins with a barrier: what the block has written before is seen.
template <class T>
__device__ __forceinline__ void multiply(float (&products)[kF32Blocks][kF32Blocks], F32Shared& shared,
                                         const F32Operand<T>& owner, const int64_t* owner_rows,
                                         const F32Operand<T>& other, const int64_t* other_rows) {
    const F32Thread thread;
    float* const stage = shared.stage;
    float* const other_stage = stage + kF32Tile * kF32Pitch;
#pragma unroll
    for (int i = 0; i < kF32Blocks; ++i)
#pragma unroll
        for (int j = 0; j < kF32Blocks; ++j) products[i][j] = 0.0f;
#pragma unroll 1
    for (int first = 0; first < owner.dim; first += kF32Depth) {
        __syncthreads();
        stage_rows<kF32Depth, kF32Pitch>(stage, owner, owner_rows, kF32Tile, first);
        stage_rows<kF32Depth, kF32Pitch>(other_stage, other, other_rows, kF32Tile, first);
        __syncthreads();
#pragma unroll 1
        for (int k = 0; k < kF32Depth; k += 4) {
            float4 a[kF32Blocks];
#pragma unroll
            for (int i = 0; i < kF32Blocks; ++i) a[i] = load_shared(stage + thread.row(i) * kF32Pitch + k);
#pragma unroll
            for (int j = 0; j < kF32Blocks; ++j) {
                const float4 b = load_shared(other_stage + thread.column(j) * kF32Pitch + k);
#pragma unroll
                for (int i = 0; i < kF32Blocks; ++i) {
                    float sum = products[i][j];
                    sum = fmaf(a[i].x, b.x, sum);
                    sum = fmaf(a[i].y, b.y, sum);
                    sum = fmaf(a[i].z, b.z, sum);
                    products[i][j] = fmaf(a[i].w, b.w, sum);
                }
            }
        }
    }
}

// Output of a thread: [row block][piece of 64 columns][column of four].
template <int kColumns> struct F32Output {
    static constexpr int kPieces = kColumns / 64;
    float at[kF32Blocks][kPieces][4];

    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < kF32Blocks; ++i)
#pragma unroll
            for (int c = 0; c < kPieces; ++c)
#pragma unroll
                for (int e = 0; e < 4; ++e) at[i][c][e] = 0.0f;
    }
    __device__ __forceinline__ void scale_row(int i, float factor) {
#pragma unroll
        for (int c = 0; c < kPieces; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) at[i][c][e] *= factor;
    }
};

// out += weights . other rows. Begins with a barrier.
template <int kColumns, class T>
__device__ __forceinline__ void add_sums(F32Output<kColumns>& out, F32Shared& shared, const F32Operand<T>& other,
                                         const int64_t* other_rows) {
    constexpr int kRows = 4096 / kColumns;  // of the other side at a time
    const F32Thread thread;
#pragma unroll 1
    for (int first = 0; first < kF32Tile; first += kRows) {
        __syncthreads();
        stage_rows<kColumns, kColumns>(shared.stage, other, other_rows + first, kRows, 0);
        __syncthreads();
#pragma unroll 1
        for (int row = 0; row < kRows; row += 4) {
            float w[kF32Blocks][4];
#pragma unroll
            for (int i = 0; i < kF32Blocks; ++i) {
                const float4 four = load_shared(shared.weights + thread.row(i) * kF32WeightPitch + first + row);
                w[i][0] = four.x, w[i][1] = four.y, w[i][2] = four.z, w[i][3] = four.w;
            }
#pragma unroll
            for (int r = 0; r < 4; ++r)
#pragma unroll
                for (int c = 0; c < F32Output<kColumns>::kPieces; ++c) {
                    const float4 x = load_shared(shared.stage + (row + r) * kColumns + 64 * c + 4 * thread.tx);
#pragma unroll
                    for (int i = 0; i < kF32Blocks; ++i) {
                        out.at[i][c][0] = fmaf(w[i][r], x.x, out.at[i][c][0]);
                        out.at[i][c][1] = fmaf(w[i][r], x.y, out.at[i][c][1]);
                        out.at[i][c][2] = fmaf(w[i][r], x.z, out.at[i][c][2]);
                        out.at[i][c][3] = fmaf(w[i][r], x.w, out.at[i][c][3]);
                    }
                }
        }
    }
}

// Row i of the output times `factor` -> the columns of `to` that `form` describes. A factor of 0 is a row that saw nothing: its sums may
// hold 0 * NaN and are not looked at.
template <class T, int kColumns>
__device__ __forceinline__ void store_row(const F32Output<kColumns>& out, int i, float factor, T* to,
                                          F32Operand<T> form) {
    const F32Thread thread;
#pragma unroll
    for (int c = 0; c < F32Output<kColumns>::kPieces; ++c) {
        const int column = 64 * c + 4 * thread.tx;
        float x[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) x[e] = factor == 0.0f ? 0.0f : out.at[i][c][e] * factor;
        if (column >= form.dim) continue;
        if (form.vector) {
            store_floats<T>(to + column, x);
        } else {
#pragma unroll
            for (int e = 0; e < 4; ++e)
                if (column + e < form.dim) to[(column + e) * form.dim_stride] = Element<T>::store(x[e]);
        }
    }
}

}  // namespace tilewise::cuda::sm80
