// Backward attention of one tile of keys: q, k, v, dO, lse, delta -> dK, dV of the tile's keys (or f32 sums of a part of the query
// heads), and what the tile adds to the f32 sums of dQ. With P = exp(s - lse), D dropout's factor, c the derivative of softcap:
//
//   dS = c P (D dO.v - delta);   dV = sum D P dO;   dK = sum dS q;   dQ += dS k
//
// dK and dV stay in registers over all rows and query heads of the group, so their bits never depend on which block comes first. K and V
// stay in shared memory, tiles of Q and dO pass by. A caller hands over delta and lse (base 2) of every row, and zeros in dQ.
//
//   params.tiles   tiles of keys: tile_m = tile_n of the row, num_heads = num_heads_kv, num_splits = parts of a group's query heads
//   params.dims    vector_q of q; vector_k of k and grad_k; vector_v of v and grad_v; vector_o of dO
//   scratch.dk, dv (num_splits, key rows, num_heads_kv, head dimension), given exactly where num_splits > 1
//   scratch.order  (row tiles of all sequences, num_heads_q) zeros; where given, dQ is summed in the order of the keys
#pragma once

#include "cuda/sm80/bwd_whole.cuh"

namespace tilewise::cuda::sm80 {

// Starts the copies of a block's K and V.
template <class Traits>
__device__ __forceinline__ void load_keys(const BackwardParams& params, const BackwardBlock& block, uint32_t base) {
    using Tiles = BackwardTiles<Traits>;
    const Sequence& s = block.sequence;
    const RowOrigin origin = {s.k_batch, s.first_key, block.head_kv, s.seqlen_k};
    const KvSource k = dense_source(params.view.k, origin, params.dims.head_dim, params.dims.vector_k);
    const KvSource v = dense_source(params.view.v, origin, params.dims.head_dim_v, params.dims.vector_v);
    load_any_tile<Traits::kThreads>(typename Tiles::K{base}, k, block.first_key);
    load_any_tile<Traits::kThreads>(typename Tiles::V{base + Traits::kVOffset}, v, block.first_key);
}

template <class Traits> __device__ __forceinline__ void init_barriers(const BackwardState<Traits>& b) {
    constexpr uint32_t kParts = Traits::kHasParts ? 1 : 0, kWarp = ptx::kArrivalsOfWarp;
    b.q().init(Traits::kRoleThreads, Traits::kWarps * kWarp);
    b.o().init(Traits::kRoleThreads, Traits::kWarps * kWarp);
    b.ds().init(Traits::kRoleWarps * kWarp, (Traits::kDqWarps + kParts * Traits::kRoleWarps) * kWarp);
    // P of a group: stored by its warps of the first role, read by those of the second and, with parts, of the first.
    for (int group = 0; group < Traits::kGroups; ++group)
        RingBarriers<1>{b.warp.base + Traits::kPBarriers + group * 16}.init(
            Traits::kShape.num_parts * kWarp, Traits::kShape.num_parts * (1 + kParts) * kWarp);
    ptx::mbarrier_init(b.warp.base + Traits::kEndBarrier, Traits::kWarps * kWarp);
}

template <class Traits> __device__ __forceinline__ void backward(const BackwardParams& params) {
    extern __shared__ __align__(128) unsigned char shared[];
    BackwardBlock& block = *reinterpret_cast<BackwardBlock*>(shared + Traits::kBlockOffset);
    const int thread = static_cast<int>(threadIdx.x);
    const BackwardState<Traits> b = {params, block, {ptx::shared_address(shared), thread}};
    {
        BackwardBlock made = block_of<Traits>(params, blockIdx.x);
        if (made.first_key >= made.sequence.seqlen_k) return;
        load_keys<Traits>(params, made, b.warp.base);
        made.rows = rows_of_block<Traits>(params, made, reinterpret_cast<Interval*>(shared + Traits::kLseOffset));
        if (thread < Traits::kGroups)
            reinterpret_cast<Interval*>(shared + Traits::kInteriorOffset)[thread] =
                interior_rows(params.view, made, made.first_key + thread * 32);
        if (thread == 0) {
            block = made;
            init_barriers(b);
        }
    }
    __syncthreads();
    const bool first_role = thread < Traits::kRoleThreads;
    if (b.num_steps() > 0) {
        if (first_role) b.fill_q(b.first_step(), 0);
        if (!Traits::kHasRoles || !first_role) b.fill_o(b.first_step(), 0);
    }
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();  // K and V
    __syncthreads();
    if constexpr (!Traits::kHasRoles) {
        make_all(b);
    } else {
        if (first_role)
            make_values(b);
        else
            make_grad_keys(b);
    }
}

}  // namespace tilewise::cuda::sm80
