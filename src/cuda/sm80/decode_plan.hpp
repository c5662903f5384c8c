// How a decode is shared out: which rows make a tile, into how many key ranges each tile is split, and how long that should take. Pure
// functions of sizes and of a device's numbers.
//
// The model. A block streams its keys at what its stages allow, one fill of them in a memory latency; a multiprocessor at a little more than
// its share of the memory's bandwidth; all of them together at that bandwidth. Before its first key a block waits for two dependent loads (lengths and page table, then keys), which hides behind other
// blocks unless all start at once. More splits give more blocks, and a merge whose time grows with the parts of a row.
#pragma once

#include <algorithm>

#include "core/device.hpp"
#include "cuda/common/params.hpp"
#include "cuda/sm80/decode_traits.hpp"

namespace tilewise::cuda::sm80 {

// Of a decode row, as far as the plan needs it: Traits::kShape, kSharedBytes, kUnit.
struct DecodeKernelNumbers {
    int32_t unit_keys = 0;    // keys that a block's warps take together
    int32_t stage_bytes = 0;  // of K and V that a block can have on their way
    int32_t shared_bytes = 0;
    int32_t min_blocks = 1;
};
template <class Traits> constexpr DecodeKernelNumbers decode_numbers() {
    return {Traits::kUnit, Traits::kShape.num_warps * Traits::kWarpBytes, Traits::kSharedBytes,
            Traits::kShape.min_blocks};
}

struct DecodeInput {
    Sizes sizes;
    int64_t visible_keys = 0;  // of one query at most: sizes.max_seqlen_k, or what a window leaves of it
    int32_t element_bytes = 2;
    bool ragged_q = false;
    bool lengths_vary = false;  // how long the sequences are is known on the device only
    int32_t num_splits = 0;     // > 0: asked for
    bool batch_invariant = false;
};

struct DecodePlan {
    int32_t num_splits = 1;
    int32_t min_split_keys = 0;
    int64_t num_tiles = 0;   // over sequences and heads; one counter each
    int64_t num_blocks = 0;  // num_tiles * num_splits
    double seconds = 0;
};

// Query heads of one tile: the whole group where queries are dense. A ragged tile holds whole queries, so a divisor of the ratio that fits.
inline int32_t decode_packed_heads(const Sizes& sizes, bool ragged_q) {
    const int32_t ratio = static_cast<int32_t>(std::max<int64_t>(sizes.gqa_ratio(), 1));
    if (!ragged_q) return ratio;
    int32_t packed = std::min(ratio, kDecodeTileM);
    while (ratio % packed != 0) --packed;
    return packed;
}

// num_splits is left at 1.
inline TileMap decode_tiles(const Sizes& sizes, bool ragged_q) {
    TileMap map;
    map.tile_m = kDecodeTileM;
    map.packed_heads = decode_packed_heads(sizes, ragged_q);
    map.num_heads = static_cast<int32_t>(sizes.num_heads_q / map.packed_heads);
    map.gqa_ratio = static_cast<int32_t>(std::max<int64_t>(sizes.gqa_ratio(), 1));
    map.ragged = ragged_q;
    map.num_tiles = ragged_q ? sizes.total_q / (kDecodeTileM / map.packed_heads) + sizes.batch
                             : ceil_div(sizes.max_seqlen_q * map.packed_heads, kDecodeTileM);
    map.num_sequences = ragged_q ? std::min<int64_t>(sizes.batch, 1) : sizes.batch;
    map.batch = static_cast<int32_t>(sizes.batch);
    return map;
}
inline int64_t decode_num_tiles(const TileMap& map) { return map.num_sequences * map.num_heads * map.num_tiles; }

namespace decode_detail {

constexpr double kBandwidthReached = 0.93;
constexpr double kShareOfMultiprocessor = 1.25;  // that one can draw, of an even share of the bandwidth
constexpr double kLatencySeconds = 1.0e-6;       // of a load from memory while memory is busy
constexpr double kLaunchSeconds = 2.5e-6;        // an empty launch and its end
constexpr double kBlockStartSeconds = 2.0e-6;    // until a block's first keys are there
constexpr double kMergeSeconds = 2.0e-6;         // arrival, the parts' lse, one batch of their rows
constexpr double kMergePartSeconds = 0.04e-6;    // each further part
constexpr int64_t kMostSplits = 128;
// Where lengths vary, the longest sequence may have far more than its share of all keys: so many blocks a slot let it be split further.
constexpr int64_t kVaryingWaves = 4;
constexpr int32_t kMinVaryingKeys = 1024;

inline int64_t slots_of(const DecodeKernelNumbers& kernel, const CudaInfo& cuda) {
    constexpr int64_t kReserved =
        1024;  // of each block, by the system; and what the opt-in maximum is below the multiprocessor's
    const int64_t fit = (cuda.shared_memory_per_block + kReserved) / (kernel.shared_bytes + kReserved);
    return std::clamp<int64_t>(fit, 1, kernel.min_blocks) * std::max(cuda.num_multiprocessors, 1);
}

inline double seconds_of(const DecodeInput& input, const DecodeKernelNumbers& kernel, const CudaInfo& cuda,
                         int64_t tiles, int64_t splits) {
    const int64_t units = ceil_div(input.visible_keys, kernel.unit_keys);
    const double keys = static_cast<double>(ceil_div(units, splits) * kernel.unit_keys);
    const double bytes =
        keys * static_cast<double>((input.sizes.head_dim + input.sizes.head_dim_v) * input.element_bytes);
    const double bandwidth = kBandwidthReached * std::max(cuda.memory_bytes_per_second, 1.0);
    const double share = kShareOfMultiprocessor * bandwidth / std::max(cuda.num_multiprocessors, 1);
    const double alone = bytes / std::min(share, kernel.stage_bytes / kLatencySeconds);  // a block that shares nothing
    const int64_t slots = slots_of(kernel, cuda);
    double seconds = kLaunchSeconds + kBlockStartSeconds;
    for (int64_t left = tiles * splits; left > 0;) {
        // Whole waves at once, then the rest.
        const int64_t waves = std::max<int64_t>(left / slots, 1);
        const int64_t blocks = std::min(left, slots);
        seconds += static_cast<double>(waves) * std::max(alone, static_cast<double>(blocks) * bytes / bandwidth);
        left -= waves * blocks;
    }
    if (splits > 1) seconds += kMergeSeconds + kMergePartSeconds * static_cast<double>(splits);
    return seconds;
}

}  // namespace decode_detail

inline DecodePlan plan_decode(const DecodeInput& input, const DecodeKernelNumbers& kernel, const CudaInfo& cuda) {
    using namespace decode_detail;
    DecodePlan plan;
    plan.num_tiles = decode_num_tiles(decode_tiles(input.sizes, input.ragged_q));
    const int64_t tiles = std::max<int64_t>(plan.num_tiles, 1);
    const int64_t most = std::clamp<int64_t>(ceil_div(input.visible_keys, kernel.unit_keys), 1, kMostSplits);
    plan.num_splits = input.num_splits;
    if (input.batch_invariant && input.num_splits == 0)
        plan.num_splits = 1;  // a split's border would depend on the batch
    plan.seconds = seconds_of(input, kernel, cuda, tiles, std::max(plan.num_splits, 1));
    if (plan.num_splits == 0) {
        plan.num_splits = 1;
        for (int64_t splits = 2; splits <= most; ++splits) {
            const double seconds = seconds_of(input, kernel, cuda, tiles, splits);
            // More parts must pay: at equal times the fewer.
            if (seconds > 0.99 * plan.seconds) continue;
            plan.seconds = seconds;
            plan.num_splits = static_cast<int32_t>(splits);
        }
        const int64_t spread = kVaryingWaves * slots_of(kernel, cuda) / tiles;
        const int64_t long_enough = std::min<int64_t>(most, input.visible_keys / kMinVaryingKeys);
        if (input.lengths_vary && std::min(spread, long_enough) > plan.num_splits) {
            plan.num_splits = static_cast<int32_t>(std::min(spread, long_enough));
            plan.min_split_keys = kMinVaryingKeys;
        }
    }
    plan.num_blocks = plan.num_tiles * plan.num_splits;
    return plan;
}

}  // namespace tilewise::cuda::sm80
