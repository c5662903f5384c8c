// The f32 sums of dQ, in the order of wgmma's accumulators of dQ^T -> grad_q. 128 threads a panel of 64 columns transpose theirs through
// shared memory.
#include "cuda/attend/elements.cuh"
#include "cuda/ptx/bulk.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/sm90/bwd_rows.cuh"
#include "cuda/sm90/tile.cuh"

namespace tilewise::cuda::sm90 {

namespace {

// Rows [0, count) of a head of one batch index, from `row` on, become zeros.
struct ClearedRows {
    int64_t q_batch = 0, row = 0, count = 0;
};
template <class T> __device__ void clear_rows(const BulkEpilogueParams& p, int32_t head, const ClearedRows& rows) {
    const int chunks = static_cast<int>(p.view.sizes.head_dim) / 8;
    for (int64_t i = threadIdx.x; i < rows.count * chunks; i += blockDim.x) {
        const int64_t offset = p.grad_q.offset(rows.q_batch, rows.row + i / chunks, head) + i % chunks * 8;
        *reinterpret_cast<uint4*>(static_cast<T*>(p.grad_q.data) + offset) = uint4{};
    }
}

template <class T, int kTileM>
__global__ void __launch_bounds__(256) sm90_bwd_epilogue(const __grid_constant__ BulkEpilogueParams p) {
    extern __shared__ __align__(1024) unsigned char shared[];
    constexpr int kGroups = kTileM / 8;
    const uint32_t num_heads = static_cast<uint32_t>(p.view.sizes.num_heads_q);
    const int32_t head = static_cast<int32_t>(blockIdx.x % num_heads);
    const int64_t tile = blockIdx.x / num_heads;
    const SequenceTable& table = p.view.sequences;
    if (table.cu_seqlens_q.given()) {  // rows of no sequence, shared out among all blocks
        const int64_t used_begin = table.cu_seqlens_q[0], used_end = table.cu_seqlens_q[p.view.sizes.batch];
        const int64_t begin = tile * kTileM, end = min_of<int64_t>(begin + kTileM, p.view.sizes.total_q);
        clear_rows<T>(p, head, {0, begin, min_of(end, used_begin) - begin});
        const int64_t behind = max_of(begin, used_end);
        clear_rows<T>(p, head, {0, behind, end - behind});
    }
    if (p.view.sizes.batch == 0) return;
    const RowTilePlace place = place_of_row_tile(p.view, kTileM, tile);
    const Sequence s = resolve_sequence(table, place.batch);
    const int32_t count = static_cast<int32_t>(clamp_to<int64_t>(s.seqlen_q - place.first_row, 0, kTileM));
    const int64_t allocated = clamp_to<int64_t>(s.allocated_q - place.first_row, 0, kTileM);
    clear_rows<T>(p, head, {s.q_batch, s.q_row + place.first_row + count, allocated - count});
    if (count == 0) return;

    const int thread = static_cast<int>(threadIdx.x) % 128, panel = static_cast<int>(threadIdx.x) / 128,
              lane = thread % 32;
    const int64_t at = (p.rows.index(head, tile) * (blockDim.x / 128) + panel) * kGroups;
    const float4* const from = reinterpret_cast<const float4*>(p.rows.dq) + at * 128 + thread;
    float4 x[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) x[g] = __ldcs(from + g * 128);
    const int row = lane % 8 + lane / 16 * 8, chunk = thread / 32 * 2 + lane / 8 % 2;
    const uint32_t base = ptx::shared_address(shared);
    const uint32_t to = base + panel * kTileM * kLineBytes + line_chunk(row, chunk);
#pragma unroll
    for (int i = 0; i < kGroups / 2; ++i) {
        const float4 a = x[2 * i], b = x[2 * i + 1];
        ptx::stmatrix_x4_trans(to + i * 16 * kLineBytes, pack_pair(T{}, a.x * p.factor, a.y * p.factor),
                               pack_pair(T{}, a.z * p.factor, a.w * p.factor),
                               pack_pair(T{}, b.x * p.factor, b.y * p.factor),
                               pack_pair(T{}, b.z * p.factor, b.w * p.factor));
    }
    __syncthreads();
    const int chunks = static_cast<int>(p.view.sizes.head_dim) / 8;
    for (int i = static_cast<int>(threadIdx.x); i < count * chunks; i += static_cast<int>(blockDim.x)) {
        const int line = i / chunks, c = i % chunks;
        const int64_t offset = p.grad_q.offset(s.q_batch, s.q_row + place.first_row + line, head) + c * 8;
        *reinterpret_cast<uint4*>(static_cast<T*>(p.grad_q.data) + offset) =
            ptx::load_shared_16(base + c / 8 * kTileM * kLineBytes + line_chunk(line, c % 8));
    }
}

template <class T> const void* entry(int32_t tile_m) {
    switch (tile_m) {
    case 32: return reinterpret_cast<const void*>(sm90_bwd_epilogue<T, 32>);
    case 64: return reinterpret_cast<const void*>(sm90_bwd_epilogue<T, 64>);
    default: return reinterpret_cast<const void*>(sm90_bwd_epilogue<T, 96>);
    }
}

}  // namespace

const void* bulk_epilogue_entry(DType dtype, int32_t tile_m) {
    return dtype == DType::kF16 ? entry<F16>(tile_m) : entry<BF16>(tile_m);
}

}  // namespace tilewise::cuda::sm90
