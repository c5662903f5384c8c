// What a backward of sm90 needs before its tiles, for every row of every row tile, those included that no sequence has:
//
//   delta[row] = rowsum(dO * O) - grad_lse;   lse_log2[row] = lse * log2(e), +inf for a row that sees no key or is of no sequence
//   zeros in the f32 sums of dQ, and in the turns of its tiles
#include "cuda/attend/elements.cuh"
#include "cuda/sm90/bwd_rows.cuh"
#include "math/online_softmax.hpp"

namespace tilewise::cuda::sm90 {

namespace {

// A row and where it lies; q_row < 0: no sequence has it.
struct PaddedRow {
    int64_t number = 0;  // over all tiles
    int64_t q_batch = 0;
    int64_t q_row = -1;
    int64_t unused_row = -1;  // of a sequence that uses fewer rows than it has
    bool exists = false;      // in a tile
};

__device__ PaddedRow padded_row(const BulkPrologueParams& p, int64_t number) {
    PaddedRow row;
    row.number = number;
    const int64_t tile = number / p.rows.tile_m;
    row.exists = tile < p.rows.num_tiles;
    if (!row.exists || p.view.sizes.batch == 0) return row;
    const RowTilePlace place = place_of_row_tile(p.view, p.rows.tile_m, tile);
    const Sequence s = resolve_sequence(p.view.sequences, place.batch);
    const int64_t of_sequence = place.first_row + (number - tile * p.rows.tile_m);
    row.q_batch = s.q_batch;
    if (of_sequence < s.seqlen_q)
        row.q_row = s.q_row + of_sequence;
    else if (of_sequence < s.allocated_q)
        row.unused_row = s.q_row + of_sequence;
    return row;
}

// Zeros in the rows of grad_q that nobody else writes: those that their sequence does not use, and, `number` taken for a row of the tensor,
// those of no sequence.
template <class T>
__device__ void clear_unused(const BulkPrologueParams& p, const PaddedRow& row, int32_t head, int lane) {
    const auto clear = [&](int64_t q_batch, int64_t q_row) {
        T* const to = static_cast<T*>(p.grad_q.data) + p.grad_q.offset(q_batch, q_row, head);
        for (int column = lane * 8; column < p.view.sizes.head_dim; column += p.lanes_of_row * 8)
            *reinterpret_cast<uint4*>(to + column) = uint4{};
    };
    if (row.unused_row >= 0) clear(row.q_batch, row.unused_row);
    const IntVector& starts = p.view.sequences.cu_seqlens_q;
    if (!starts.given() || row.number >= p.view.sizes.total_q) return;
    if (row.number < starts[0] || row.number >= starts[p.view.sizes.batch]) clear(0, row.number);
}

template <class T>
__device__ float dot_of_row(const BulkPrologueParams& p, const PaddedRow& row, int32_t head, int lane) {
    constexpr int kColumns = kElementsOfAccess<T, true>;
    const auto* o = static_cast<const T*>(p.view.o.data) + p.view.o.offset(row.q_batch, row.q_row, head);
    const auto* grad = static_cast<const T*>(p.grad_o.data) + p.grad_o.offset(row.q_batch, row.q_row, head);
    float sum = 0.0f;
    for (int column = lane * kColumns; column < p.view.sizes.head_dim_v; column += p.lanes_of_row * kColumns) {
        float a[kColumns], b[kColumns];
        load_floats<T, kColumns>(o + column, a);
        load_floats<T, kColumns>(grad + column, b);
#pragma unroll
        for (int i = 0; i < kColumns; ++i) sum += a[i] * b[i];
    }
    return sum;
}

template <class T>
__global__ void __launch_bounds__(kPrologueThreads) sm90_bwd_prologue(const __grid_constant__ BulkPrologueParams p) {
    const uint32_t num_heads = static_cast<uint32_t>(p.view.sizes.num_heads_q);
    const int32_t head = static_cast<int32_t>(blockIdx.x % num_heads), thread = static_cast<int32_t>(threadIdx.x);
    const int32_t rows_of_pass = kPrologueThreads / p.lanes_of_row, lane = thread % p.lanes_of_row;
    const int64_t first = int64_t{blockIdx.x / num_heads} * kPrologueRows * rows_of_pass + thread / p.lanes_of_row;
    PaddedRow rows[kPrologueRows];
    float dot[kPrologueRows];
#pragma unroll
    for (int i = 0; i < kPrologueRows; ++i) {
        rows[i] = padded_row(p, first + i * rows_of_pass);
        dot[i] = rows[i].q_row >= 0 ? dot_of_row<T>(p, rows[i], head, lane) : 0.0f;
    }
    const int32_t quads = p.panels * 16;  // of floats in a row of dq
#pragma unroll
    for (int i = 0; i < kPrologueRows; ++i) {
        const PaddedRow& row = rows[i];
        dot[i] = sum_of_lanes(dot[i], p.lanes_of_row);
        if (!row.exists) continue;
        const int64_t at = p.rows.index(head, 0) * p.rows.tile_m + row.number;
        if (p.rows.dq == nullptr) {
            clear_unused<T>(p, row, head, lane);
        } else {
            float4* const dq = reinterpret_cast<float4*>(p.rows.dq) + at * quads;
            for (int quad = lane; quad < quads; quad += p.lanes_of_row) dq[quad] = float4{};
        }
        if (lane != 0) continue;
        float delta = 0.0f, lse = negative_infinity();
        if (row.q_row >= 0) {
            lse = static_cast<const float*>(p.view.lse.data)[p.view.lse.offset(row.q_batch, head, row.q_row)];
            delta = dot[i];
            if (p.grad_lse.given())
                delta -= static_cast<const float*>(p.grad_lse.data)[p.grad_lse.offset(row.q_batch, head, row.q_row)];
        }
        p.rows.delta[at] = delta;
        p.rows.lse_log2[at] = lse == negative_infinity() ? -negative_infinity() : lse * kLog2E;
        if (p.rows.turns != nullptr && row.number % p.rows.tile_m == 0)
            p.rows.turns[p.rows.index(head, row.number / p.rows.tile_m)] = 0;
    }
}

}  // namespace

const void* bulk_prologue_entry(DType dtype) {
    return dtype == DType::kF16 ? reinterpret_cast<const void*>(sm90_bwd_prologue<F16>)
                                : reinterpret_cast<const void*>(sm90_bwd_prologue<BF16>);
}

}  // namespace tilewise::cuda::sm90
