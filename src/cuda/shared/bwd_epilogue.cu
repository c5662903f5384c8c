// The f32 sums of a backward -> its gradients: factor * from (parts, tokens, heads, dim) -> to (batch, row, head, dim), rounded once.
// Every row is written: those of no sequence were summed to 0. A row belongs to a power of two of neighbouring lanes.
#include "cuda/attend/elements.cuh"
#include "cuda/shared/bwd_params.hpp"

namespace tilewise::cuda {

namespace {

template <class T, bool kVector>
__global__ void __launch_bounds__(kBackwardRowThreads) bwd_epilogue(const __grid_constant__ EpilogueParams p) {
    constexpr int kColumns = kElementsOfAccess<T, kVector>;
    const int thread = static_cast<int>(threadIdx.x);
    const int64_t row = int64_t{blockIdx.x} * (kBackwardRowThreads / p.lanes_of_row) + thread / p.lanes_of_row;
    const int64_t token = row / p.num_heads;
    if (token >= p.num_tokens) return;
    const int64_t head = row - token * p.num_heads;
    const int64_t batch = token / p.rows_per_batch;
    const float* const from = p.from + row * p.dim;
    const int64_t part_stride = p.num_tokens * p.num_heads * p.dim;
    T* const to = static_cast<T*>(p.to.data) + p.to.offset(batch, token - batch * p.rows_per_batch, head);
    for (int column = thread % p.lanes_of_row * kColumns; column < p.dim; column += p.lanes_of_row * kColumns) {
        float values[kColumns];
        load_floats<float, kColumns>(from + column, values);
#pragma unroll 1
        for (int part = 1; part < p.num_parts; ++part) {
            float more[kColumns];
            load_floats<float, kColumns>(from + part * part_stride + column, more);
#pragma unroll
            for (int i = 0; i < kColumns; ++i) values[i] += more[i];
        }
#pragma unroll
        for (int i = 0; i < kColumns; ++i) values[i] *= p.factor;
        store_floats<T, kColumns>(to + column * p.to.dim_stride, values);
    }
}

template <class T> const void* entry(bool vector) {
    return vector ? reinterpret_cast<const void*>(bwd_epilogue<T, true>)
                  : reinterpret_cast<const void*>(bwd_epilogue<T, false>);
}

}  // namespace

const void* epilogue_entry(DType dtype, bool vector) {
    switch (dtype) {
    case DType::kF32: return entry<float>(vector);
    case DType::kF16: return entry<F16>(vector);
    default: return entry<BF16>(vector);
    }
}

}  // namespace tilewise::cuda
