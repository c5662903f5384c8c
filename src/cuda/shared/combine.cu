// Merges partial outputs by their log-sum-exp:
//
//   lse = log(sum_n exp(part_lse[n]) (+ exp(sink)));   o = sum_n exp(part_lse[n] - lse) part_o[n]
//
// A unit is one row of one head (a chunk of its columns); reading the parts is all the work, so a warp reads 16 bytes a lane
// and, where parts are many, the four warps of a block share them. The sum always has the same shape, four interleaved
// partial sums, so a row's bits do not depend on how many warps made it.
#include "cuda/attend/elements.cuh"
#include "cuda/shared/combine_params.hpp"
#include "math/online_softmax.hpp"

namespace tilewise::cuda {

namespace {

constexpr int kGroups = kCombineWarps;

struct Unit {
    TokenPlace place;
    int32_t head = 0;
    int32_t chunk = 0;
    bool exists = false;
};

__device__ Unit unit_of(const CombineParams& p, int64_t index) {
    Unit unit;
    const int64_t row = index / p.num_chunks;
    const int64_t token = row / p.num_heads;
    if (token >= p.tokens.count) return unit;
    unit.chunk = static_cast<int32_t>(index - row * p.num_chunks);
    unit.head = static_cast<int32_t>(row - token * p.num_heads);
    unit.place = place_of_token(p.tokens, token);
    unit.exists = unit.place.sequence >= 0;
    if (unit.exists && p.seqused_q.given()) unit.exists = unit.place.row < p.seqused_q[unit.place.sequence];
    return unit;
}

// The merged lse, the same in every lane. fmaxf drops a NaN, but its exponential does not.
__device__ float merged_lse(const CombineParams& p, const float* lse, float sink) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float maximum = sink;
    for (int64_t n = lane; n < p.parts.count; n += 32) maximum = fmaxf(maximum, lse[n * p.parts.lse_stride]);
    for (int distance = 16; distance > 0; distance /= 2)
        maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, distance));
    const float shift = shift_of(maximum);
    float sum = 0.0f;
    for (int64_t n = lane; n < p.parts.count; n += 32) sum += expf(lse[n * p.parts.lse_stride] - shift);
    sum = sum_of_lanes(sum, 32) + expf(sink - shift);
    return sum == 0.0f ? negative_infinity() : shift + logf(sum);
}

// Weighted sum of the parts group, group + kGroups, ... An empty part may hold anything, so it is skipped and not multiplied by 0.
template <class T, int kColumns>
__device__ __forceinline__ void sum_group(const CombineParams& p, const T* o, const float* lse, float merged, int group,
                                          float (&sums)[kColumns]) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[c] = 0.0f;
#pragma unroll 4
    for (int64_t n = group; n < p.parts.count; n += kGroups) {
        const float part = lse[n * p.parts.lse_stride];
        float values[kColumns];
        load_floats<T, kColumns>(o + n * p.parts.o_stride, values);
        const float weight = part == negative_infinity() ? 0.0f : expf(part - merged);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) sums[c] += weight == 0.0f ? 0.0f : weight * values[c];
    }
}

template <int kColumns>
__device__ void store_columns(const CombineParams& p, const Unit& unit, int column, const float (&sums)[kColumns]) {
    const int64_t offset = p.o.offset(unit.place.tensor_batch, unit.place.tensor_row, unit.head);
    if (p.vector_o) {
        switch (p.o.dtype) {
        case DType::kF32: return store_floats<float>(static_cast<float*>(p.o.data) + offset + column, sums);
        case DType::kF16: return store_floats<F16>(static_cast<F16*>(p.o.data) + offset + column, sums);
        default: return store_floats<BF16>(static_cast<BF16*>(p.o.data) + offset + column, sums);
        }
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) store_real(p.o.data, p.o.dtype, offset + (column + c) * p.o.dim_stride, sums[c]);
}

template <class T, bool kVector>
__global__ void __launch_bounds__(kCombineThreads) combine(const __grid_constant__ CombineParams p) {
    constexpr int kColumns = kElementsOfAccess<T, kVector>;
    __shared__ float shared[kGroups][32 * kColumns];
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const bool alone = p.warps_of_unit == 1;
    const Unit unit = unit_of(p, alone ? int64_t{blockIdx.x} * kCombineWarps + warp : int64_t{blockIdx.x});
    if (!unit.exists) return;  // of a whole block where its warps wait for each other below
    const TokenPlace& place = unit.place;
    const int column = (unit.chunk * 32 + lane) * kColumns;
    const bool has_columns = column < p.head_dim_v;
    const auto* lse = static_cast<const float*>(p.parts.lse.data) +
                      p.parts.lse.offset(place.tensor_batch, unit.head, place.tensor_row);
    const auto* o = static_cast<const T*>(p.parts.o.data) +
                    p.parts.o.offset(place.tensor_batch, place.tensor_row, unit.head) +
                    (has_columns ? column * p.parts.o.dim_stride : 0);
    const float sink = p.sink.given() ? p.sink.at(0, unit.head) : negative_infinity();
    const float merged = merged_lse(p, lse, sink);
    if (unit.chunk == 0 && lane == 0 && (alone || warp == 0) && p.lse.given())
        static_cast<float*>(p.lse.data)[p.lse.offset(place.tensor_batch, unit.head, place.tensor_row)] = merged;

    float sums[kGroups][kColumns];
    if (alone) {
#pragma unroll
        for (int group = 0; group < kGroups; ++group) sum_group<T>(p, o, lse, merged, group, sums[group]);
    } else {
        sum_group<T>(p, o, lse, merged, warp, sums[0]);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) shared[warp][c * 32 + lane] = sums[0][c];
        __syncthreads();
        if (warp != 0) return;
#pragma unroll
        for (int group = 0; group < kGroups; ++group)
#pragma unroll
            for (int c = 0; c < kColumns; ++c) sums[group][c] = shared[group][c * 32 + lane];
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[0][c] = (sums[0][c] + sums[1][c]) + (sums[2][c] + sums[3][c]);
    if (has_columns) store_columns(p, unit, column, sums[0]);
}

template <class T> const void* entry(bool vector) {
    return vector ? reinterpret_cast<const void*>(combine<T, true>) : reinterpret_cast<const void*>(combine<T, false>);
}

}  // namespace

const void* combine_entry(DType parts, bool vector) {
    switch (parts) {
    case DType::kF32: return entry<float>(vector);
    case DType::kF16: return entry<F16>(vector);
    default: return entry<BF16>(vector);
    }
}

}  // namespace tilewise::cuda
