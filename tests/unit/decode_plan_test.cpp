// How a decode is split, on recorded GPUs: by how much a GPU is filled, never finer than the keys allow, and predicted times that a
// memory-bound kernel can reach.
#include "cuda/sm80/decode_plan.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tilewise::cuda::sm80 {
namespace {

using Kernel = DecodeTraits<BF16, ModScore, 128, 128, 16, 2, 4, 3>;
constexpr DecodeKernelNumbers kKernel = decode_numbers<Kernel>();

const CudaInfo& gpu(const std::string& key) {
    for (const RecordedDevice& device : recorded_devices())
        if (key == device.key) return device.info.cuda;
    static const CudaInfo none;
    return none;
}

DecodeInput decode_of(int64_t batch, int64_t seqlen_k, int64_t heads_q = 32) {
    DecodeInput input;
    input.sizes.batch = batch;
    input.sizes.num_heads_q = heads_q;
    input.sizes.num_heads_kv = 8;
    input.sizes.head_dim = input.sizes.head_dim_v = 128;
    input.sizes.total_q = batch;
    input.sizes.max_seqlen_q = 1;
    input.sizes.max_seqlen_k = input.visible_keys = seqlen_k;
    return input;
}

double floor_of(const DecodeInput& input, const CudaInfo& cuda) {
    const Sizes& sizes = input.sizes;
    return static_cast<double>(2 * sizes.batch * sizes.num_heads_kv * input.visible_keys * 256) /
           cuda.memory_bytes_per_second;
}

TEST(DecodePlan, BlocksAreTilesTimesSplits) {
    for (const char* key : {"h200", "h100", "a100", "rtx5090", "rtx4090", "rtx3090"})
        for (const int64_t batch : {1, 3, 16, 128})
            for (const int64_t keys : {1, 63, 64, 1000, 8192, 131072}) {
                const DecodePlan plan = plan_decode(decode_of(batch, keys), kKernel, gpu(key));
                EXPECT_EQ(plan.num_tiles, batch * 8);
                EXPECT_EQ(plan.num_blocks, plan.num_tiles * plan.num_splits);
                EXPECT_GE(plan.num_splits, 1);
                EXPECT_LE(plan.num_splits, ceil_div(keys, kKernel.unit_keys)) << key << ' ' << batch << ' ' << keys;
                EXPECT_GT(plan.seconds, floor_of(decode_of(batch, keys), gpu(key)));
            }
}

TEST(DecodePlan, FewSequencesFillTheGpu) {
    for (const char* key : {"h200", "a100", "rtx4090"}) {
        const DecodePlan plan = plan_decode(decode_of(1, 65536), kKernel, gpu(key));
        EXPECT_GE(plan.num_blocks, gpu(key).num_multiprocessors * 3 / 4) << key;
    }
}

TEST(DecodePlan, LargeBatchesComeCloseToTheBandwidth) {
    for (const char* key : {"h200", "h100", "a100", "rtx5090", "rtx4090", "rtx3090"})
        for (const int64_t batch : {16, 64, 100, 128}) {
            const DecodeInput input = decode_of(batch, 16384);
            EXPECT_LT(plan_decode(input, kKernel, gpu(key)).seconds, 1.2 * floor_of(input, gpu(key)))
                << key << ' ' << batch;
        }
}

TEST(DecodePlan, MoreKeysTakeLonger) {
    double before = 0;
    for (int64_t keys = 64; keys <= 131072; keys *= 2) {
        const double seconds = plan_decode(decode_of(4, keys), kKernel, gpu("h200")).seconds;
        EXPECT_GE(seconds, before) << keys;
        before = seconds;
    }
}

TEST(DecodePlan, SplitsThatAreAskedForAreUsed) {
    DecodeInput input = decode_of(64, 16384);
    input.num_splits = 7;
    EXPECT_EQ(plan_decode(input, kKernel, gpu("h200")).num_splits, 7);
    input.num_splits = 0;
    input.batch_invariant = true;
    EXPECT_EQ(plan_decode(input, kKernel, gpu("h200")).num_splits, 1);
}

TEST(DecodePlan, LengthsOfTheDeviceAllowFinerSplits) {
    DecodeInput input = decode_of(64, 131072);
    input.lengths_vary = true;
    const DecodePlan plan = plan_decode(input, kKernel, gpu("h200"));
    input.lengths_vary = false;
    const DecodePlan equal = plan_decode(input, kKernel, gpu("h200"));
    EXPECT_GE(plan.num_splits, equal.num_splits);
    // A split that short is not worth its merge, whatever the capacity.
    EXPECT_TRUE(plan.num_splits == equal.num_splits || plan.min_split_keys >= 1024);
}

TEST(DecodePlan, TilesHoldGroupsAndQueries) {
    Sizes sizes = decode_of(3, 100, 64).sizes;
    EXPECT_EQ(decode_tiles(sizes, false).packed_heads, 8);
    EXPECT_EQ(decode_tiles(sizes, false).num_tiles, 1);
    sizes.max_seqlen_q = 5;  // 40 rows
    EXPECT_EQ(decode_tiles(sizes, false).num_tiles, 3);
    sizes.num_heads_q = 8 * 24;
    EXPECT_EQ(decode_tiles(sizes, false).packed_heads, 24);
    EXPECT_EQ(decode_tiles(sizes, true).packed_heads, 12);
    EXPECT_EQ(decode_tiles(sizes, true).num_heads, 16);
    sizes.batch = 0;
    EXPECT_EQ(plan_decode({.sizes = sizes}, kKernel, gpu("h200")).num_blocks, 0);
}

}  // namespace
}  // namespace tilewise::cuda::sm80
