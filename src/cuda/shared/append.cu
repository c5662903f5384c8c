// Appends new keys and values to a cache and rotates keys and queries:
//
//   k_new (b, n, hk, d), v_new (b, n, hk, dv) -> rows cache_seqlens[b] .. + n - 1 of k, v (dense or paged)
//   q (b, sq, h, d) -> q_rotated;   cache_seqlens + n -> total_seqlens
//
// A warp takes one row of one head, of k_new and v_new or of q, found from its place in memory. Lengths and indices lie on the
// device, so they are judged here: a row whose place or position does not exist is not written, and a bit says so.
#include "cuda/attend/elements.cuh"
#include "cuda/shared/append_params.hpp"
#include "math/cache_fault.hpp"

namespace tilewise::cuda {

namespace {

__device__ void raise(const AppendParams& p, int32_t fault) {
    if (fault != 0 && p.error_flag != nullptr && threadIdx.x % 32 == 0) atomicOr(p.error_flag, fault);
}

__device__ int64_t first_position(const AppendParams& p, int64_t sequence) {
    return p.lengths.rotary_seqlens.given() ? p.lengths.rotary_seqlens[sequence] : p.lengths.cache_seqlens[sequence];
}
__device__ int32_t fault_of_position(const AppendParams& p, int64_t position) {
    const bool exists = p.rotary.dim == 0 || (position >= 0 && position < p.rotary.num_positions);
    return exists ? 0 : kFaultPosition;
}

// Place of a cache row, counted from the cache's first one: here left padding is like any row. Not 0: it does not exist.
__device__ int32_t find_cache_place(const AppendParams& p, int64_t sequence, int64_t row, KeyPlace* place) {
    if (row < 0 || row >= p.limits.capacity) return kFaultLength;
    const IntVector& index = p.view.sequences.cache_batch_idx;
    const int64_t cache_row = index.given() ? index[sequence] : sequence;
    if (cache_row < 0 || cache_row >= p.limits.cache_rows) return kFaultCacheRow;
    *place = {cache_row, row};
    const PageTable& pages = p.view.pages;
    if (pages.data == nullptr) return 0;
    *place = paged_key(pages.data + cache_row * pages.row_stride, pages.page_stride, pages.page_size, row);
    return place->page < 0 || place->page >= p.limits.num_pages ? kFaultPage : 0;
}

// One head of one row: `from` and `to` have their own element strides. A warp works on it.
template <class T> struct HeadRow {
    const T* from;
    int64_t from_stride;
    T* to;
    int64_t to_stride;
};

template <class T> __device__ void copy_columns(const HeadRow<T>& row, int64_t begin, int64_t end) {
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x % 32; i < end; i += 32)
        row.to[i * row.to_stride] = row.from[i * row.from_stride];
}

template <class T> __device__ void rotate_columns(const Rotary& rotary, int64_t position, const HeadRow<T>& row) {
    const auto entry = [&](const RotaryTable& table, int32_t t) {
        return load_real(table.data, rotary.dtype, position * table.position_stride + t * table.pair_stride);
    };
    for (int32_t t = static_cast<int32_t>(threadIdx.x % 32); t < rotary.dim / 2; t += 32) {
        const RotaryPair pair = rotary_pair(t, rotary.dim, rotary.interleaved);
        const Rotated<float> rotated = rotate<float>(Element<T>::load(row.from[pair.first * row.from_stride]),
                                                     Element<T>::load(row.from[pair.second * row.from_stride]),
                                                     entry(rotary.cos, t), entry(rotary.sin, t));
        row.to[pair.first * row.to_stride] = Element<T>::store(rotated.first);
        row.to[pair.second * row.to_stride] = Element<T>::store(rotated.second);
    }
}

template <class T>
__device__ HeadRow<T> head_row(const HeadTensor& from, int64_t from_offset, const HeadTensor& to, int64_t to_offset) {
    return {static_cast<const T*>(from.data) + from_offset, from.dim_stride, static_cast<T*>(to.data) + to_offset,
            to.dim_stride};
}

template <class T> __device__ void append_head(const AppendParams& p, int64_t token, int64_t head) {
    const TokenPlace source = place_of_token(p.new_tokens, token);
    if (source.sequence < 0) return;
    KeyPlace place{0, 0};
    const int64_t position = first_position(p, source.sequence) + source.row;
    const int32_t fault =
        find_cache_place(p, source.sequence, p.lengths.cache_seqlens[source.sequence] + source.row, &place) |
        fault_of_position(p, position);
    if (fault != 0) return raise(p, fault);
    const HeadTensor &k = p.view.k, &v = p.view.v;
    const auto key = head_row<T>(p.k_new, p.k_new.offset(source.tensor_batch, source.tensor_row, head), k,
                                 k.offset(place.page, place.slot, head));
    const auto value = head_row<T>(p.v_new, p.v_new.offset(source.tensor_batch, source.tensor_row, head), v,
                                   v.offset(place.page, place.slot, head));
    rotate_columns(p.rotary, position, key);
    copy_columns(key, p.rotary.dim, p.view.sizes.head_dim);
    copy_columns(value, 0, p.view.sizes.head_dim_v);
}

// A query without a position in the tables is copied as it is.
template <class T> __device__ void rotate_query(const AppendParams& p, int64_t token, int64_t head) {
    const TokenPlace source = place_of_token(p.query_tokens, token);
    if (source.sequence < 0) return;
    const int64_t position =
        rotary_query_position(first_position(p, source.sequence), source.row, p.rotary.rotates_by_row);
    const int32_t fault = fault_of_position(p, position);
    const auto query = head_row<T>(p.view.q, p.view.q.offset(source.tensor_batch, source.tensor_row, head), p.q_rotated,
                                   p.q_rotated.offset(source.tensor_batch, source.tensor_row, head));
    if (fault == 0) rotate_columns(p.rotary, position, query);
    raise(p, fault);
    copy_columns(query, fault == 0 ? p.rotary.dim : 0, p.view.sizes.head_dim);
}

// Lengths after the append, for attention to read: never more than the cache holds, 0 where there is no cache row.
__device__ void count_keys(const AppendParams& p, int64_t sequence) {
    int32_t fault = 0;
    int64_t added = p.new_tokens.rows_per_batch;
    if (const IntVector& cumulative = p.new_tokens.cu_seqlens; cumulative.given()) {
        added = int64_t{cumulative[sequence + 1]} - cumulative[sequence];
        if (added < 0 || cumulative[sequence + 1] > p.new_tokens.count || cumulative[0] != 0) fault |= kFaultNewRows;
        added = max_of<int64_t>(added, 0);
    }
    const int64_t cached = p.lengths.cache_seqlens[sequence];
    if (cached < 0 || cached + added > p.limits.capacity) fault |= kFaultLength;
    int64_t total = clamp_to<int64_t>(cached + added, 0, p.limits.capacity);
    if (const IntVector& index = p.view.sequences.cache_batch_idx; index.given()) {
        if (index[sequence] < 0 || index[sequence] >= p.limits.cache_rows) {
            fault |= kFaultCacheRow;
            total = 0;
        }
    }
    if (p.lengths.total_seqlens != nullptr) p.lengths.total_seqlens[sequence] = static_cast<int32_t>(total);
    if (fault != 0 && p.error_flag != nullptr) atomicOr(p.error_flag, fault);
}

template <class T> __global__ void __launch_bounds__(kAppendThreads) append(const __grid_constant__ AppendParams p) {
    const int64_t heads_kv = p.view.sizes.num_heads_kv, heads_q = p.view.sizes.num_heads_q;
    int64_t unit = int64_t{blockIdx.x} * (kAppendThreads / 32) + threadIdx.x / 32;
    if (unit < p.new_tokens.count * heads_kv) return append_head<T>(p, unit / heads_kv, unit % heads_kv);
    unit -= p.new_tokens.count * heads_kv;
    if (unit < p.query_tokens.count * heads_q) return rotate_query<T>(p, unit / heads_q, unit % heads_q);
    unit -= p.query_tokens.count * heads_q;
    const int64_t sequence = unit * 32 + threadIdx.x % 32;
    if (sequence < p.new_tokens.num_sequences) count_keys(p, sequence);
}

}  // namespace

const void* append_entry(DType dtype) {
    switch (dtype) {
    case DType::kF32: return reinterpret_cast<const void*>(append<float>);
    case DType::kF16: return reinterpret_cast<const void*>(append<F16>);
    default: return reinterpret_cast<const void*>(append<BF16>);
    }
}

}  // namespace tilewise::cuda
