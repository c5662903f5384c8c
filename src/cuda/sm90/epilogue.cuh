// The end of a warpgroup's 64 rows: O / row sum and lse, or f32 partial results of one key range.
#pragma once

#include "cuda/attend/epilogue.cuh"
#include "cuda/ptx/bulk.cuh"
#include "cuda/ptx/warpgroup.cuh"
#include "cuda/sm90/fwd_params.hpp"
#include "cuda/sm90/softmax.cuh"
#include "cuda/sm90/tile.cuh"
#include "cuda/sm90/work.cuh"

namespace tilewise::cuda::sm90 {

// Accumulators of wgmma as the pieces of attend/ take them: blocks of eight columns.
template <int kCount>
__device__ __forceinline__ auto blocks_of_columns(float (&s)[kCount]) -> float (&)[1][kCount / 4][4] {
    return reinterpret_cast<float(&)[1][kCount / 4][4]>(s);
}

// A thread of the warpgroup and its rows: r = 0, 1 is row first + thread / 32 * 16 + thread % 32 / 4 + 8 r of the tile.
struct GroupThread {
    int group = 0;   // of the consumers
    int thread = 0;  // 0 to 127
    __device__ __forceinline__ int32_t first_row() const {
        return group * kGroupRows + thread / 32 * 16;
    }  // of its warp
    __device__ __forceinline__ int32_t row(int r) const { return first_row() + thread % 32 / 4 + 8 * r; }
};

template <class Element>
__device__ __forceinline__ FinishedRow finish_row(const ForwardParams& params, const RowStats<Element>& rows, int r,
                                                  float sink) {
    return cuda::finish_row(scaled_reference<Element>(rows.reference[r], params.score_scale),
                            quad_sum(rows.row_sum[r]) * kUnlift<Element>, sink,
                            params.view.score.dropout.keep_scale * kUnlift<Element>);
}

// Factors of O, and lse out. A tile of one head is most of them, and short.
template <class Element>
__device__ __forceinline__ void finish_rows(const ForwardParams& params, const WorkItem& item, const GroupThread& self,
                                            const RowStats<Element>& rows, float (&factor)[2]) {
    const RowTile& t = item.tile;
    const bool partial = params.tiles.num_splits > 1, is_leader = self.thread % 4 == 0;
    if (t.packed_heads == 1 && !partial) {
        float* const lse = static_cast<float*>(params.view.lse.data);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int32_t row = self.row(r);
            const FinishedRow finished = finish_row(params, rows, r, item.sink);
            factor[r] = finished.factor;
            if (is_leader && lse != nullptr && row < t.num_rows && params.dims.first_column_v == 0)
                lse[item.lse_offset + row * params.view.lse.row_stride] = finished.lse;
        }
        return;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int32_t row = self.row(r);
        const bool exists = row < t.num_rows;
        const PackedRow place = packed_row(t, row);
        const FinishedRow finished =
            finish_row(params, rows, r, partial || !exists ? negative_infinity() : params.view.sink_of(place.head));
        factor[r] = finished.factor;
        if (is_leader) store_lse(params, t, {place.query, place.head, exists}, finished.lse);
    }
}

// Byte offset of column 0 of a row in o, negative where there is none.
__device__ __forceinline__ int64_t output_row(const HeadTensor& o, const RowTile& t, int32_t row) {
    if (row >= t.num_rows) return -1;
    const PackedRow place = packed_row(t, row);
    return o.offset(t.sequence.q_batch, t.sequence.q_row + place.query, place.head) * 2;
}

// Registers -> shared -> global: by the copy engine where all 64 rows exist, else line by line. `staging` is the warpgroup's own.
template <class Traits>
__device__ __forceinline__ void store_staged(const BulkForwardParams& params, const RowTile& t, const GroupThread& self,
                                             const uint32_t (&packed)[Traits::kShape.head_dim_v / 4],
                                             uint32_t staging) {
    constexpr int kPanelBytes = kGroupRows * kLineBytes;
    const int barrier = 1 + self.group, lane = self.thread % 32;
    const HeadDims& dims = params.base.dims;
    if (self.thread == 0) ptx::bulk_wait_read();
    ptx::barrier_sync(barrier, 128);
    const int row = self.thread / 32 * 16 + lane % 16;
#pragma unroll
    for (int c = 0; c < Traits::kShape.head_dim_v / 16; ++c)
        ptx::stmatrix_x4(staging + c / 4 * kPanelBytes + line_chunk(row, c % 4 * 2 + lane / 16), packed[4 * c],
                         packed[4 * c + 1], packed[4 * c + 2], packed[4 * c + 3]);
    ptx::fence_async_proxy();
    ptx::barrier_sync(barrier, 128);
    const int32_t first = self.group * kGroupRows;
    if (params.bulk_output && first + kGroupRows <= t.num_rows) {
        if (self.thread == 0) {
            ptx::BoxPlace place = {dims.first_column_v, t.first_head,
                                   static_cast<int32_t>(t.sequence.q_row) + packed_row(t, first).query,
                                   static_cast<int32_t>(t.sequence.q_batch)};
#pragma unroll
            for (int panel = 0; panel < Traits::kVPanels; ++panel, place.column += kPanelColumns)
                ptx::store_box(&params.o, place, staging + panel * kPanelBytes);
            ptx::bulk_commit();
        }
        return;
    }
    char* const data = static_cast<char*>(params.base.view.o.data) + dims.first_column_v * 2;
#pragma unroll 1
    for (int line = self.thread / 8; line < kGroupRows; line += 16) {
        const int64_t offset = output_row(params.base.view.o, t, first + line);
#pragma unroll
        for (int panel = 0; panel < Traits::kVPanels; ++panel) {
            const int column = panel * kPanelColumns + self.thread % 8 * 8;
            if (offset >= 0 && column < dims.head_dim_v)
                *reinterpret_cast<uint4*>(data + offset + column * 2) =
                    ptx::load_shared_16(staging + panel * kPanelBytes + line_chunk(line, self.thread % 8));
        }
    }
}

// Registers -> global: a quad exchanges words so that each of its threads writes 16 bytes of a row.
template <class Traits>
__device__ __forceinline__ void store_direct(const BulkForwardParams& params, const RowTile& t, const GroupThread& self,
                                             const uint32_t (&packed)[Traits::kShape.head_dim_v / 4]) {
    constexpr uint32_t kAll = 0xffffffffu;
    const bool odd = (self.thread & 1) != 0, high = (self.thread & 2) != 0;
    const HeadDims& dims = params.base.dims;
    const int first_column = self.thread % 4 * 8;
    char* const data = static_cast<char*>(params.base.view.o.data) + dims.first_column_v * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int64_t offset = output_row(params.base.view.o, t, self.row(r));
#pragma unroll
        for (int j = 0; j < Traits::kShape.head_dim_v / 8; j += 4) {
            const uint32_t w[4] = {packed[2 * j + r], packed[2 * j + 2 + r], packed[2 * j + 4 + r],
                                   packed[2 * j + 6 + r]};
            const uint32_t a = __shfl_xor_sync(kAll, odd ? w[0] : w[1], 1),
                           b = __shfl_xor_sync(kAll, odd ? w[2] : w[3], 1);
            const uint32_t x0 = odd ? a : w[0], x1 = odd ? w[1] : a, y0 = odd ? b : w[2], y1 = odd ? w[3] : b;
            const uint32_t c = __shfl_xor_sync(kAll, high ? x0 : y0, 2), d = __shfl_xor_sync(kAll, high ? x1 : y1, 2);
            const int column = j * 8 + first_column;
            if (offset >= 0 && column < dims.head_dim_v)
                *reinterpret_cast<uint4*>(data + offset + column * 2) =
                    high ? make_uint4(c, d, y0, y1) : make_uint4(x0, x1, c, d);
        }
    }
}

// o: sums of the tile's rows.
template <class Traits>
__device__ __forceinline__ void store_tile(const BulkForwardParams& params, const WorkItem& item,
                                           const GroupThread& self, const RowStats<typename Traits::Element>& rows,
                                           float (&o)[Traits::kShape.head_dim_v / 2], uint32_t staging) {
    const RowTile& t = item.tile;
    float factor[2];
    finish_rows(params.base, item, self, rows, factor);
    if (params.base.tiles.num_splits > 1) {
        store_partial(params.base, t, blocks_of_columns(o), factor, self.first_row());
        return;
    }
    uint32_t packed[Traits::kShape.head_dim_v / 4];
#pragma unroll
    for (int i = 0; i < Traits::kShape.head_dim_v / 4; ++i)
        packed[i] =
            tile::Products<typename Traits::Element>::pack(o[2 * i] * factor[i % 2], o[2 * i + 1] * factor[i % 2]);
    if constexpr (Traits::kShape.staged != 0)
        store_staged<Traits>(params, t, self, packed,
                             staging + self.group * (Traits::kOBytes / Traits::kShape.warpgroups));
    else
        store_direct<Traits>(params, t, self, packed);
}

}  // namespace tilewise::cuda::sm90
