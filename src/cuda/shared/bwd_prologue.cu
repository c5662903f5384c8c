// What a backward needs before its tiles:
//
//   delta[row] = rowsum(dO * O) - grad_lse;   lse_log2[row] = lse * log2(e), +inf for a row that sees no key or is of no sequence
//   zeros in the f32 sums of dQ, dK, dV, and in the gradients of rows that no sequence uses
//
// and the gradient of the sink, which is a sum of what was just computed. A block's rows are (token, head) flattened, tokens as in tokens.hpp.
// A row belongs to a power of two of neighbouring lanes, so that narrow heads leave no lane idle.
#include "cuda/attend/elements.cuh"
#include "cuda/shared/bwd_params.hpp"
#include "math/online_softmax.hpp"

namespace tilewise::cuda {

namespace {

// A row and this lane's share of it.
struct LaneOfRow {
    int64_t row = 0;
    int64_t token = 0;
    int32_t head = 0;
    int32_t lane = 0;
    bool exists = false;
};
__device__ LaneOfRow lane_of_row(int32_t lanes, int64_t num_tokens, int32_t num_heads) {
    LaneOfRow x;
    const int thread = static_cast<int>(threadIdx.x);
    x.row = int64_t{blockIdx.x} * (kBackwardRowThreads / lanes) + thread / lanes;
    x.lane = thread % lanes;
    x.exists = x.row < num_tokens * num_heads;
    x.token = x.exists ? x.row / num_heads : 0;
    x.head = x.exists ? static_cast<int32_t>(x.row - x.token * num_heads) : 0;
    return x;
}

template <class T, bool kVector>
__device__ float dot_rows(const HeadTensor& a, const HeadTensor& b, const TokenPlace& place, const LaneOfRow& x,
                          const PrologueParams& p) {
    constexpr int kColumns = kElementsOfAccess<T, kVector>;
    const auto* row_a = static_cast<const T*>(a.data) + a.offset(place.tensor_batch, place.tensor_row, x.head);
    const auto* row_b = static_cast<const T*>(b.data) + b.offset(place.tensor_batch, place.tensor_row, x.head);
    const int dim = static_cast<int>(p.backward.view.sizes.head_dim_v);
    float sum = 0.0f;
    for (int column = x.lane * kColumns; column < dim; column += p.lanes_of_row * kColumns) {
        float values_a[kColumns], values_b[kColumns];
        load_floats<T, kColumns>(row_a + column * a.dim_stride, values_a);
        load_floats<T, kColumns>(row_b + column * b.dim_stride, values_b);
#pragma unroll
        for (int i = 0; i < kColumns; ++i) sum += values_a[i] * values_b[i];
    }
    return sum;
}

// f32, contiguous, shared by `lanes` lanes.
__device__ void clear_floats(float* to, int64_t count, int lane, int lanes) {
    if (count % 4 == 0) {
        for (int64_t i = lane; i < count / 4; i += lanes) reinterpret_cast<float4*>(to)[i] = float4{};
    } else {
        for (int64_t i = lane; i < count; i += lanes) to[i] = 0.0f;
    }
}

struct LanesOfWarp {
    int lane;
    int lanes;
};
__device__ void clear_row(const HeadTensor& to, int64_t offset, int64_t dim, LanesOfWarp who) {
    for (int64_t i = who.lane; i < dim; i += who.lanes) store_real(to.data, to.dtype, offset + i * to.dim_stride, 0.0f);
}

template <class T, bool kVector>
__global__ void __launch_bounds__(kBackwardRowThreads) bwd_prologue(const __grid_constant__ PrologueParams p) {
    const AttentionView& view = p.backward.view;
    const BackwardScratch& scratch = p.backward.scratch;
    const Gradients& grad = p.backward.grad;
    const LaneOfRow x = lane_of_row(p.lanes_of_row, p.tokens.count, static_cast<int32_t>(view.sizes.num_heads_q));
    const TokenPlace place = x.exists ? place_of_token(p.tokens, x.token) : TokenPlace{};
    const bool used = x.exists && is_used_query(view, place);
    const float dot = sum_of_lanes(used ? dot_rows<T, kVector>(view.o, grad.o, place, x, p) : 0.0f, p.lanes_of_row);
    if (!x.exists) return;
    if (scratch.dq != nullptr)
        clear_floats(scratch.dq + x.row * view.sizes.head_dim, view.sizes.head_dim, x.lane, p.lanes_of_row);
    else if (!used)
        clear_row(grad.q, grad.q.offset(place.tensor_batch, place.tensor_row, x.head), view.sizes.head_dim,
                  {x.lane, p.lanes_of_row});
    if (x.lane != 0) return;
    float delta = 0.0f, lse = negative_infinity();
    if (used) {
        lse = static_cast<const float*>(view.lse.data)[view.lse.offset(place.tensor_batch, x.head, place.tensor_row)];
        delta = dot;
        if (grad.lse.given())
            delta -=
                static_cast<const float*>(grad.lse.data)[grad.lse.offset(place.tensor_batch, x.head, place.tensor_row)];
    }
    const int64_t at = scratch.value_index(view.sizes, place.tensor_batch, x.head, place.tensor_row);
    scratch.delta[at] = delta;
    scratch.lse_log2[at] = lse == negative_infinity() ? -negative_infinity() : lse * kLog2E;
}

__global__ void __launch_bounds__(kBackwardRowThreads) bwd_key_prologue(const __grid_constant__ KeyPrologueParams p) {
    const AttentionView& view = p.backward.view;
    const BackwardScratch& scratch = p.backward.scratch;
    const Gradients& grad = p.backward.grad;
    const LaneOfRow x = lane_of_row(32, p.tokens.count, static_cast<int32_t>(view.sizes.num_heads_kv));
    if (!x.exists) return;
    const int64_t head_dim = view.sizes.head_dim, head_dim_v = view.sizes.head_dim_v;
    for (int32_t part = 0; part < p.backward.tiles.num_splits; ++part) {
        const int64_t row = part * p.tokens.count * view.sizes.num_heads_kv + x.row;
        if (scratch.dk != nullptr) clear_floats(scratch.dk + row * head_dim, head_dim, x.lane, 32);
        if (scratch.dv != nullptr) clear_floats(scratch.dv + row * head_dim_v, head_dim_v, x.lane, 32);
    }
    if (!p.any_unused) return;
    const TokenPlace place = place_of_token(p.tokens, x.token);
    if (is_used_key(view, place)) return;
    if (scratch.dk == nullptr)
        clear_row(grad.k, grad.k.offset(place.tensor_batch, place.tensor_row, x.head), head_dim, {x.lane, 32});
    if (scratch.dv == nullptr)
        clear_row(grad.v, grad.v.offset(place.tensor_batch, place.tensor_row, x.head), head_dim_v, {x.lane, 32});
}

// One block: a chunk of tokens of one head, in a fixed order.
__global__ void __launch_bounds__(kBackwardRowThreads) bwd_sink_chunks(const __grid_constant__ SinkParams p) {
    constexpr int kWarps = kBackwardRowThreads / 32;
    __shared__ float sums[kWarps];
    const int thread = static_cast<int>(threadIdx.x);
    const uint32_t num_heads = static_cast<uint32_t>(p.num_heads);
    const int64_t chunk = blockIdx.x / num_heads, head = blockIdx.x % num_heads;
    const float sink = p.sink.at(0, head) * kLog2E;
    const int64_t end = min_of((chunk + 1) * kTokensOfChunk, p.num_tokens);
    float sum = 0.0f;
    int64_t batch = chunk * kTokensOfChunk / p.head_rows;
    int64_t row = chunk * kTokensOfChunk + thread - batch * p.head_rows;
    for (int64_t token = chunk * kTokensOfChunk + thread; token < end;
         token += kBackwardRowThreads, row += kBackwardRowThreads) {
        for (; row >= p.head_rows; row -= p.head_rows) ++batch;
        const int64_t at = (batch * num_heads + head) * p.head_rows + row;
        const float lse = p.lse_log2[at];
        // A row that sees nothing, without a sink: no probability, whatever its delta is.
        if (lse != -negative_infinity()) sum -= exp2f(sink - lse) * p.delta[at];
    }
    sum = sum_of_lanes(sum, 32);
    if (thread % 32 == 0) sums[thread / 32] = sum;
    __syncthreads();
    if (thread != 0) return;
    for (int i = 1; i < kWarps; ++i) sum += sums[i];
    p.sums[chunk * p.num_heads + head] = sum;
}

// One warp a head: chunks in a fixed order.
__global__ void __launch_bounds__(32) bwd_sink_total(const __grid_constant__ SinkParams p) {
    const int64_t head = blockIdx.x;
    float sum = 0.0f;
    for (int64_t chunk = threadIdx.x; chunk < p.num_chunks; chunk += 32) sum += p.sums[chunk * p.num_heads + head];
    sum = sum_of_lanes(sum, 32);
    if (threadIdx.x == 0) p.grad_sink[head * p.grad_stride] = sum;
}

template <class T> const void* entry(bool vector) {
    return vector ? reinterpret_cast<const void*>(bwd_prologue<T, true>)
                  : reinterpret_cast<const void*>(bwd_prologue<T, false>);
}

}  // namespace

const void* prologue_entry(DType dtype, bool vector) {
    switch (dtype) {
    case DType::kF32: return entry<float>(vector);
    case DType::kF16: return entry<F16>(vector);
    default: return entry<BF16>(vector);
    }
}
const void* key_prologue_entry() { return reinterpret_cast<const void*>(bwd_key_prologue); }
const void* sink_chunks_entry() { return reinterpret_cast<const void*>(bwd_sink_chunks); }
const void* sink_total_entry() { return reinterpret_cast<const void*>(bwd_sink_total); }

}  // namespace tilewise::cuda
