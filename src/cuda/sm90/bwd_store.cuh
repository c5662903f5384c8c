// The end of a warpgroup's 64 keys: dK or dV -> shared memory, over its own rows of K or V -> global memory.
#pragma once

#include "cuda/ptx/bulk.cuh"
#include "cuda/sm90/bwd_block.cuh"
#include "cuda/sm90/bwd_tile.cuh"
#include "cuda/sm90/epilogue.cuh"
#include "cuda/tile/element.cuh"

namespace tilewise::cuda::sm90 {

struct KeyTarget {
    const CUtensorMap* map;
    const HeadTensor* tensor;
    int32_t num_columns;
    uint32_t staging;  // the tile of K or V
    int barrier;       // a named one of the warpgroup
};

template <class Traits, int kPanels, int kCount>
__device__ __forceinline__ void store_keys(const BulkBackwardParams& params, const KeyBlock& block,
                                           const GroupThread& self, const float (&sums)[kCount], float factor,
                                           const KeyTarget& target) {
    constexpr int kPanelBytes = Traits::kKeys * kLineBytes;
    const int lane = self.thread % 32, row = self.group * kGroupRows + self.thread / 32 * 16 + lane % 16;
#pragma unroll
    for (int c = 0; c < kCount / 8; ++c) {
        const float* const x = &sums[8 * c];
        using P = tile::Products<typename Traits::Element>;
        ptx::stmatrix_x4(target.staging + c / 4 * kPanelBytes + line_chunk(row, c % 4 * 2 + lane / 16),
                         P::pack(x[0] * factor, x[1] * factor), P::pack(x[2] * factor, x[3] * factor),
                         P::pack(x[4] * factor, x[5] * factor), P::pack(x[6] * factor, x[7] * factor));
    }
    ptx::fence_async_proxy();
    ptx::barrier_sync(target.barrier, 128);
    const Sequence& s = block.sequence;
    const int32_t first = block.first_key + self.group * kGroupRows;
    const int64_t first_row = s.first_key + first;
    const uint32_t staged = target.staging + self.group * kGroupRows * kLineBytes;
    // What a box has outside of the tensor is dropped; what lies behind the sequence in it belongs to others.
    if (first + kGroupRows <= s.seqlen_k || s.first_key + s.seqlen_k >= params.rows_of_k) {
        if (self.thread == 0 && first < s.seqlen_k) {
            ptx::BoxPlace place = {0, block.head_kv, static_cast<int32_t>(first_row), static_cast<int32_t>(s.k_batch)};
#pragma unroll
            for (int panel = 0; panel < kPanels; ++panel, place.column += kPanelColumns)
                ptx::store_box(target.map, place, staged + panel * kPanelBytes);
            ptx::bulk_commit();
        }
        return;
    }
    char* const data = static_cast<char*>(target.tensor->data);
#pragma unroll 1
    for (int line = self.thread / 8; line < min(kGroupRows, s.seqlen_k - first); line += 16) {
        const int64_t offset = target.tensor->offset(s.k_batch, first_row + line, block.head_kv) * 2;
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel) {
            const int column = panel * kPanelColumns + self.thread % 8 * 8;
            if (column < target.num_columns)
                *reinterpret_cast<uint4*>(data + offset + column * 2) =
                    ptx::load_shared_16(staged + panel * kPanelBytes + line_chunk(line, self.thread % 8));
        }
    }
}

}  // namespace tilewise::cuda::sm90
