// dQ of one step: dS K, 32 rows and kDqColumns columns a warp, added to the f32 sums in memory; in any order, or in the order of the keys.
#pragma once

#include "cuda/sm80/bwd_tile.cuh"

namespace tilewise::cuda::sm80 {

template <class Traits> struct GradQ {
    using Element = typename Traits::Element;
    using Tiles = BackwardTiles<Traits>;
    static constexpr int kBlocks = Traits::kDqColumns / 8;
    using Ds = typename Tiles::Ds;
    using Keys = ColumnsOfN<typename Tiles::K, Traits::kDqColumns / 8>;

    uint32_t ds;     // this lane's fragments of dS in slot 0, as A operand from [key][query]
    Keys k;          // and of K, as B operand
    int32_t row;     // this lane's first row in the tile
    int32_t column;  // and its first column

    __device__ GradQ(const BackwardWarp<Traits>& warp) {
        const int index = Traits::kShape.dq_turns == 1 ? warp.thread / 32 : warp.index();
        const int row_part = index % Traits::kDqRowParts, column_part = index / Traits::kDqRowParts;
        ds = Ds::moved(tile::b_lane(Ds{warp.base + Traits::kDsOffset}, warp.lane()), row_part * 4);
        k = Keys::of(warp.k(), warp.lane(), column_part);
        row = row_part * 32 + warp.lane() / 4;
        column = column_part * Traits::kDqColumns + warp.lane() % 4 * 2;
    }

    __device__ __forceinline__ void multiply_keys(float (&dq)[2][kBlocks][4], int slot) const {
        clear(dq);
        const uint32_t from = ds + slot * Traits::kDsBytes;
        auto load = [from](uint32_t(&a)[2][4], int step) {
            ptx::ldmatrix_x4_trans(a[0], from + step * 16 * Ds::kPitch);
            ptx::ldmatrix_x4_trans(a[1], Ds::moved(from, 2) + step * 16 * Ds::kPitch);
        };
        multiply<Element, Traits::kShape.tile_n / 16>(dq, load, k);
    }

    __device__ __forceinline__ void add(const float (&dq)[2][kBlocks][4], const BackwardParams& params,
                                        const Sequence& s, BackwardStep step) const {
        const int64_t num_heads = params.view.sizes.num_heads_q, head_dim = params.dims.head_dim;
        const int64_t first = s.q_batch * params.scratch.rows_per_batch + s.q_row + step.row + row;
        float* to = params.scratch.dq + (first * num_heads + step.head) * head_dim + column;
        const int64_t row_step = 8 * num_heads * head_dim;
        const int32_t rows_left = s.seqlen_q - step.row - row;
        if (head_dim == Traits::kShape.head_dim) {
            add_whole_rows(dq, to, row_step, rows_left);
            return;
        }
#pragma unroll
        for (int r = 0; r < 4; ++r, to += row_step) {
            if (r * 8 >= rows_left) return;
#pragma unroll
            for (int i = 0; i < 2 * kBlocks; ++i)
                if (column + i / 2 * 8 + i % 2 < head_dim)
                    ptx::reduce_add(to + i / 2 * 8 + i % 2, dq[r / 2][i / 2][r % 2 * 2 + i % 2]);
        }
    }

    // All columns exist. Two lanes side by side have four columns of each of two blocks: the even one takes those of the first block, the odd one those
    // of the second, and both add 16 bytes at once where the architecture can.
    __device__ __forceinline__ void add_whole_rows(const float (&dq)[2][kBlocks][4], float* to, int64_t row_step,
                                                   int32_t rows_left) const {
        const bool odd = threadIdx.x % 2 == 1;
        if (ptx::kHasReduceAdd4 && odd) to += 8 - 2;
#pragma unroll
        for (int r = 0; r < 4; ++r)
#pragma unroll
            for (int n = 0; n < kBlocks; n += 2) {
                const float x0 = dq[r / 2][n][r % 2 * 2], x1 = dq[r / 2][n][r % 2 * 2 + 1];
                const float y0 = dq[r / 2][n + 1][r % 2 * 2], y1 = dq[r / 2][n + 1][r % 2 * 2 + 1];
                float* const at = to + r * row_step + n * 8;
                if constexpr (ptx::kHasReduceAdd4) {
                    const float got0 = __shfl_xor_sync(0xffffffffu, odd ? x0 : y0, 1);
                    const float got1 = __shfl_xor_sync(0xffffffffu, odd ? x1 : y1, 1);
                    const float4 four = odd ? float4{got0, got1, y0, y1} : float4{x0, x1, got0, got1};
                    if (r * 8 < rows_left) ptx::reduce_add_4(at, four);
                } else if (r * 8 < rows_left) {
                    ptx::reduce_add(at, x0);
                    ptx::reduce_add(at + 1, x1);
                    ptx::reduce_add(at + 8, y0);
                    ptx::reduce_add(at + 9, y1);
                }
            }
    }

    // The counter of a row tile and head counts warps: kDqWarps of them a block. Warps of this block may have arrived already.
    __device__ __forceinline__ static int32_t* counter_of(const BackwardParams& params, const BackwardBlock& block,
                                                          BackwardStep step) {
        const int64_t tile = block.order_tile + step.row / Traits::kShape.tile_m;
        return params.scratch.order + tile * params.view.sizes.num_heads_q + step.head;
    }
    __device__ void add_in_turn(const float (&dq)[2][kBlocks][4], const BackwardParams& params,
                                const BackwardBlock& block, BackwardStep step) const {
        const int32_t* const counter = counter_of(params, block, step);
        const int32_t turn = turn_of<Traits>(block, step.row) * Traits::kDqWarps;
        if (threadIdx.x % 32 == 0)
            while (ptx::load_acquire(counter) < turn) {}
        __syncwarp();
        add(dq, params, block.sequence, step);
    }
    // The turn that add_in_turn of `step` took ends, some products later, when its additions have arrived without anyone's waiting for them.
    __device__ __forceinline__ static void end_turn(const BackwardParams& params, const BackwardBlock& block,
                                                    BackwardStep step) {
        __threadfence();  // each lane's sums are in place
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::add_release(counter_of(params, block, step), 1);
    }

    // After the slot is full; `release` says that it has been read.
    template <class Release>
    __device__ __forceinline__ void run(const BackwardParams& params, const BackwardBlock& block, BackwardStep step,
                                        int slot, Release release) const {
        float dq[2][kBlocks][4];
        multiply_keys(dq, slot);
        release();
        if (params.scratch.order == nullptr)
            add(dq, params, block.sequence, step);
        else
            add_in_turn(dq, params, block, step);
    }
};

}  // namespace tilewise::cuda::sm80
