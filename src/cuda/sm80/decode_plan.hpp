// How a decode is shared out: which rows make a tile, into how many key ranges each tile is split, whether these are merged in clusters of
// blocks or through memory, and how long that should take. Pure functions of sizes and of a device's numbers.
//
// The model, calibrated on an H200 (docs/kernels/sm80_decode.md). A launch takes a constant until its first keys are there. Then a
// multiprocessor draws up to twice its even share of the bandwidth, a block less, since each fill of its stages costs it a latency; and all
// together draw the bandwidth. Blocks of a second, partly filled wave pile up on the multiprocessors that were done first; with more waves the
// last block starts late. More splits give more blocks, and a merge whose time grows with the parts of a row.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/device.hpp"
#include "cuda/common/params.hpp"
#include "cuda/sm80/decode_traits.hpp"

namespace tilewise::cuda::sm80 {

// Of a decode row, as far as the plan needs it.
struct DecodeKernelNumbers {
    int32_t unit_keys = 0;    // keys that a block's warps take together
    int32_t stage_bytes = 0;  // of K and V that a block can have on their way
    int32_t shared_bytes = 0;
    int32_t min_blocks = 1;
    int32_t head_dim_v = 0;
    bool one_token = false;  // has the leaner start and merge, and can merge in clusters
};
template <class Traits> constexpr DecodeKernelNumbers decode_numbers() {
    return {Traits::kUnit,
            Traits::kShape.num_warps * Traits::kWarpBytes,
            Traits::kSharedBytes,
            Traits::kShape.min_blocks,
            Traits::kShape.head_dim_v,
            Traits::kOneToken};
}
// What a block takes; `cluster_blocks` is 1 without a cluster.
constexpr int32_t decode_shared_bytes(const DecodeKernelNumbers& kernel, int32_t cluster_blocks) {
    if (cluster_blocks == 1) return kernel.shared_bytes;
    return decode_cluster_offset(kernel.shared_bytes) + decode_cluster_bytes(kernel.head_dim_v, cluster_blocks);
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
    bool clustered = false;  // the splits of a tile are a cluster
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

constexpr double kBandwidthReached = 0.91;
constexpr double kShareOfMultiprocessor = 2.05;  // that one can draw, of an even share of the bandwidth
constexpr double kRefillSeconds = 0.43e-6;       // that a fill of all stages of a block takes beside its bytes
constexpr double kWaveSeconds = 1.5e-6;          // between two blocks of a slot, where no other block fills the gap
constexpr double kTailBlocks = 0.65;  // that a multiprocessor streams after the others, at the end of many waves
// Until the first keys are there, and the end of the launch; then a merge, and what each part adds to it.
struct Overheads {
    double start, merge, part;
};
constexpr Overheads kGeneral = {5.9e-6, 2.4e-6, 0.2e-6};
constexpr Overheads kOneToken = {3.9e-6, 1.2e-6, 0.1e-6};
constexpr Overheads kClustered = {3.9e-6, 0.4e-6, 0.03e-6};
constexpr int64_t kMostSplits = 128;
// Cluster sizes that fill the GPU: the 16 to 18 multiprocessors of a GPC hold a whole number of these, or nearly. Clusters that do not all run
// at once are slower than a merge through memory.
constexpr int64_t kMostClusterBlocks = 8;
// Where lengths vary, a split shorter than this is not worth its part of a merge through memory.
constexpr int32_t kMinVaryingKeys = 256;

// How a decode could be shared out.
struct Choice {
    int64_t tiles = 1;
    int64_t splits = 1;
    bool clustered = false;
};

inline int64_t blocks_of_multiprocessor(const DecodeKernelNumbers& kernel, const CudaInfo& cuda, const Choice& c) {
    // Of each block, by the system; and what the opt-in maximum is below the multiprocessor's.
    constexpr int64_t kReserved = 1024;
    const int64_t bytes = decode_shared_bytes(kernel, c.clustered ? static_cast<int32_t>(c.splits) : 1);
    return std::clamp<int64_t>((cuda.shared_memory_per_block + kReserved) / (bytes + kReserved), 1, kernel.min_blocks);
}

// Whether the splits of each tile can be a cluster, all of them running at once.
inline bool fits_clusters(const DecodeKernelNumbers& kernel, const CudaInfo& cuda, const Choice& c) {
    constexpr int32_t kFirstCapability = 90;
    const bool is_size = c.splits >= 2 && c.splits <= kMostClusterBlocks && (c.splits & (c.splits - 1)) == 0;
    if (!kernel.one_token || cuda.compute_capability < kFirstCapability || !is_size) return false;
    if (decode_shared_bytes(kernel, static_cast<int32_t>(c.splits)) > cuda.shared_memory_per_block) return false;
    // Pairs of multiprocessors hold clusters of two. Larger ones leave over up to a sixth: a GPC's rest, and GPCs of different sizes.
    const int64_t multiprocessors = cuda.num_multiprocessors;
    const int64_t clusters = c.splits == 2 ? multiprocessors / 2 : multiprocessors * 5 / 6 / c.splits;
    return c.tiles <= clusters * blocks_of_multiprocessor(kernel, cuda, c);
}

// Bytes a second: of all multiprocessors, and of one alone.
struct StreamRates {
    double all, one;
};
inline StreamRates stream_rates(const CudaInfo& cuda) {
    const double all = kBandwidthReached * std::max(cuda.memory_bytes_per_second, 1.0);
    return {all, kShareOfMultiprocessor * all / std::max(cuda.num_multiprocessors, 1)};
}
// `blocks` blocks of `bytes` each at once, `load` on a multiprocessor.
inline double stream_seconds(const DecodeKernelNumbers& kernel, const StreamRates& rates, double bytes, int64_t blocks,
                             int64_t load) {
    const double all = static_cast<double>(blocks) * bytes / rates.all;
    const double one = static_cast<double>(load) * bytes / rates.one + bytes * kRefillSeconds / kernel.stage_bytes;
    // A little more than the longer of the two, where they are about equal.
    const double longer = std::max(all, one), shorter = std::min(all, one);
    return longer > 0 ? longer * std::pow(1 + std::pow(shorter / longer, 6), 1.0 / 6) : 0.0;
}

inline double seconds_of(const DecodeInput& input, const DecodeKernelNumbers& kernel, const CudaInfo& cuda,
                         const Choice& c) {
    const int64_t units = ceil_div(input.visible_keys, kernel.unit_keys);
    const double keys = static_cast<double>(ceil_div(units, c.splits) * kernel.unit_keys);
    const double bytes =
        keys * static_cast<double>((input.sizes.head_dim + input.sizes.head_dim_v) * input.element_bytes);
    const int64_t multiprocessors = std::max(cuda.num_multiprocessors, 1);
    const int64_t load = blocks_of_multiprocessor(kernel, cuda, c), slots = load * multiprocessors;
    const int64_t blocks = c.tiles * c.splits;
    const Overheads& overheads = c.clustered ? kClustered : kernel.one_token ? kOneToken : kGeneral;
    const double merge = c.splits > 1 ? overheads.merge + overheads.part * static_cast<double>(c.splits) : 0.0;
    const double gap = (kWaveSeconds + merge) / static_cast<double>(load);
    const StreamRates rates = stream_rates(cuda);
    double seconds = overheads.start + merge;
    if (blocks <= slots)  // blocks of clusters are packed, others spread out
        seconds += stream_seconds(kernel, rates, bytes, blocks, c.clustered ? load : ceil_div(blocks, multiprocessors));
    else if (blocks < 2 * slots)
        seconds += stream_seconds(kernel, rates, bytes, slots, load) + gap +
                   stream_seconds(kernel, rates, bytes, blocks - slots, std::min(load, blocks - slots));
    else
        seconds += static_cast<double>(blocks) * bytes / rates.all + kTailBlocks * bytes / rates.one +
                   (static_cast<double>(blocks) / static_cast<double>(slots) - 1) * gap;
    return seconds;
}

}  // namespace decode_detail

inline DecodePlan plan_decode(const DecodeInput& input, const DecodeKernelNumbers& kernel, const CudaInfo& cuda) {
    using namespace decode_detail;
    DecodePlan plan;
    plan.num_tiles = decode_num_tiles(decode_tiles(input.sizes, input.ragged_q));
    const int64_t tiles = std::max<int64_t>(plan.num_tiles, 1);
    const bool is_asked = input.num_splits > 0 || input.batch_invariant;
    // A split's border would depend on the batch where that is not wanted.
    const int64_t asked = std::max(input.num_splits, 1);
    const int64_t most =
        is_asked ? asked : std::clamp<int64_t>(ceil_div(input.visible_keys, kernel.unit_keys), 1, kMostSplits);
    // More parts must pay. Where every multiprocessor has a tile anyway, gains that the model promises were not measured.
    const double wanted = is_asked || tiles < cuda.num_multiprocessors ? 0.99 : 0.92;
    for (int64_t splits = is_asked ? asked : 1; splits <= most; splits += std::max<int64_t>(splits / 8, 1))
        for (const bool clustered : {false, true}) {
            const Choice choice = {tiles, splits, clustered};
            if (clustered && !fits_clusters(kernel, cuda, choice)) continue;
            const double seconds = seconds_of(input, kernel, cuda, choice);
            if (plan.seconds > 0 && seconds > wanted * plan.seconds) continue;
            plan.seconds = seconds;
            plan.num_splits = static_cast<int32_t>(splits);
            plan.clustered = clustered;
        }
    if (input.lengths_vary && !is_asked && plan.num_splits > 1 && !plan.clustered)
        plan.min_split_keys = kMinVaryingKeys;
    plan.num_blocks = plan.num_tiles * plan.num_splits;
    return plan;
}

}  // namespace tilewise::cuda::sm80
