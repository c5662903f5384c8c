// How a decode is split, on recorded GPUs: by how much a GPU is filled, never finer than the keys allow, and predicted times that a
// memory-bound kernel can reach. On the H200 the choice is held against measured times.
#include "cuda/sm80/decode_plan.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/sm80/decode_token_params.hpp"

namespace tilewise::cuda::sm80 {
namespace {

constexpr DecodeKernelNumbers kKernel = decode_numbers<DecodeTraits<BF16, ModScore, 128, 128, 16, 2, 4, 3>>();

struct TokenKernel {
    const char* name;
    DecodeKernelNumbers numbers;
};
constexpr TokenKernel kTokenKernels[] = {
    {"s2w8", decode_numbers<DecodeTraits<BF16, PlainScore, 128, 128, 16, 2, 8, 1>>()},
    {"s3w4", decode_numbers<DecodeTraits<BF16, PlainScore, 128, 128, 16, 3, 4, 2>>()},
    {"s2w4", decode_numbers<DecodeTraits<BF16, PlainScore, 128, 128, 16, 2, 4, 3>>()},
};

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
            EXPECT_LT(plan_decode(input, kKernel, gpu(key)).seconds, 1.25 * floor_of(input, gpu(key)))
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

// Kernel, number of splits, and c where a cluster merges them: what the planner takes of the rows for one token.
struct TokenChoice {
    std::string name;
    DecodePlan plan;
};
TokenChoice choose(const DecodeInput& input, const CudaInfo& cuda) {
    TokenChoice best;
    for (const TokenKernel& kernel : kTokenKernels) {
        if (kernel.numbers.shared_bytes > cuda.shared_memory_per_block) continue;
        const DecodePlan plan = plan_decode(input, kernel.numbers, cuda);
        if (!best.name.empty() && plan.seconds >= best.plan.seconds) continue;
        best = {std::string(kernel.name) + "/" + std::to_string(plan.num_splits) + (plan.clustered ? "c" : ""), plan};
    }
    return best;
}

// Microseconds on an H200: the best of all choices, and those that the planner may take. docs/kernels/sm80_decode.md has the whole table.
struct MeasuredTime {
    const char* choice;
    double microseconds;
};
struct MeasuredCell {
    int64_t batch, keys, heads_q;
    double best;
    std::vector<MeasuredTime> times;
};
const std::vector<MeasuredCell>& measured_cells() {
    static const std::vector<MeasuredCell> cells = {
        {1, 1024, 32, 5.5, {{"s2w8/8c", 5.5}, {"s2w4/8c", 5.7}, {"s3w4/8c", 5.7}, {"s2w8/8", 6.8}}},
        {1, 4096, 32, 9.1, {{"s2w8/8c", 9.1}, {"s2w4/8c", 9.7}, {"s2w8/8", 10.4}, {"s2w8/16", 10.9}}},
        {1, 8192, 64, 13.2, {{"s2w8/8c", 13.2}, {"s2w8/16", 14.6}, {"s2w4/8c", 15.2}}},
        {1, 16384, 32, 21.2, {{"s2w8/8c", 21.3}, {"s2w8/16", 21.8}, {"s3w4/16", 22.0}}},
        {1, 65536, 32, 67.9, {{"s2w8/16", 67.9}, {"s3w4/16", 68.6}, {"s2w4/16", 69.3}, {"s3w4/32", 69.5}}},
        {1, 131072, 64, 129.7, {{"s2w8/16", 129.7}, {"s3w4/16", 132.4}, {"s2w4/16", 133.5}}},
        {2, 2048, 32, 9.0, {{"s2w8/4c", 9.0}, {"s2w4/8c", 9.2}, {"s2w4/4c", 9.5}, {"s2w8/4", 10.3}}},
        {4, 1024, 32, 9.2, {{"s2w4/4c", 9.2}, {"s2w8/2c", 9.5}, {"s2w4/4", 9.8}, {"s2w8/4", 10.2}}},
        {4, 4096, 32, 21.1, {{"s2w8/4", 21.1}, {"s3w4/8", 21.1}, {"s3w4/4", 21.3}, {"s2w4/4c", 23.2}}},
        {4, 16384, 32, 67.2, {{"s2w8/4", 67.2}, {"s3w4/4", 67.5}, {"s2w4/4c", 78.4}}},
        {8, 4096, 32, 35.0, {{"s2w8/2c", 35.0}, {"s3w4/2c", 35.3}, {"s2w4/2c", 35.4}, {"s2w8/2", 36.5}}},
        {16, 1024, 32, 19.3, {{"s2w8/1", 19.3}, {"s2w4/1", 19.5}, {"s3w4/1", 19.5}, {"s2w4/2c", 19.6}}},
        {16, 4096, 32, 65.5, {{"s2w8/1", 65.5}, {"s3w4/1", 66.2}, {"s2w4/1", 66.3}}},
        {16, 8192, 64, 126.9, {{"s2w8/1", 126.9}, {"s3w4/1", 128.4}, {"s2w4/1", 128.9}}},
        {17, 2000, 32, 42.5, {{"s2w4/1", 43.0}, {"s2w4/2", 43.8}, {"s2w8/1", 46.2}, {"s3w4/1", 47.4}}},
        {64, 1024, 32, 67.0, {{"s3w4/1", 67.0}, {"s2w8/1", 69.7}, {"s2w4/2", 71.6}, {"s2w4/1", 74.3}}},
        {64, 4096, 32, 254.1, {{"s3w4/1", 254.1}, {"s2w8/1", 259.0}, {"s3w4/2", 259.8}, {"s2w4/1", 282.9}}},
        {64, 8192, 64, 504.5, {{"s3w4/1", 504.5}, {"s2w8/1", 512.3}, {"s2w4/1", 557.3}}},
        {100, 3000, 32, 286.3, {{"s2w4/1", 286.3}, {"s3w4/1", 288.0}, {"s2w8/1", 290.3}, {"s2w4/2", 293.1}}},
        {128, 1024, 32, 129.8, {{"s3w4/1", 129.8}, {"s2w4/1", 130.8}, {"s2w8/1", 131.4}, {"s2w4/2", 133.3}}},
        {128, 4096, 64, 507.5, {{"s2w4/2", 507.5}, {"s2w8/1", 513.9}, {"s3w4/1", 515.6}, {"s2w4/1", 520.2}}},
        {128, 16384, 32, 1991.6, {{"s2w4/2", 1991.6}, {"s2w4/1", 2022.2}, {"s3w4/1", 2048.8}, {"s2w8/1", 2064.4}}},
    };
    return cells;
}

TEST(DecodePlan, ChoicesAreTheFastestThatWereMeasured) {
    for (const MeasuredCell& cell : measured_cells()) {
        const TokenChoice choice = choose(decode_of(cell.batch, cell.keys, cell.heads_q), gpu("h200"));
        double microseconds = 1e9;
        for (const MeasuredTime& time : cell.times)
            if (choice.name == time.choice) microseconds = time.microseconds;
        EXPECT_LT(microseconds, 1.035 * cell.best)
            << "batch " << cell.batch << ", " << cell.keys << " keys: " << choice.name;
        EXPECT_NEAR(choice.plan.seconds * 1e6 / microseconds, 1.0, 0.11) << cell.batch << ' ' << cell.keys;
    }
}

TEST(DecodePlan, ClustersRunAtOnceOrNotAtAll) {
    for (const RecordedDevice& device : recorded_devices())
        for (const int64_t batch : {1, 2, 4, 8, 16, 64})
            for (const int64_t keys : {256, 1024, 4096, 131072})
                for (const TokenKernel& kernel : kTokenKernels) {
                    const CudaInfo& cuda = device.info.cuda;
                    const DecodePlan plan = plan_decode(decode_of(batch, keys), kernel.numbers, cuda);
                    if (!plan.clustered) continue;
                    EXPECT_GE(cuda.compute_capability, 90);
                    EXPECT_LE(plan.num_splits, 8);
                    EXPECT_LE(plan.num_blocks, int64_t{cuda.num_multiprocessors} * kernel.numbers.min_blocks);
                    EXPECT_LE(decode_shared_bytes(kernel.numbers, plan.num_splits), cuda.shared_memory_per_block);
                }
    EXPECT_TRUE(plan_decode(decode_of(1, 1024), kTokenKernels[0].numbers, gpu("h200")).clustered);
    EXPECT_FALSE(plan_decode(decode_of(1, 1024), kTokenKernels[2].numbers, gpu("a100")).clustered);
    EXPECT_FALSE(plan_decode(decode_of(1, 1024), kKernel, gpu("h200")).clustered);
}

TEST(DecodePlan, LengthsOfTheDeviceAreTakenAsEqual) {
    for (const int64_t batch : {1, 4, 64, 100})
        for (const TokenKernel& kernel : kTokenKernels) {
            DecodeInput input = decode_of(batch, 16384);
            const DecodePlan equal = plan_decode(input, kernel.numbers, gpu("h200"));
            input.lengths_vary = true;
            const DecodePlan plan = plan_decode(input, kernel.numbers, gpu("h200"));
            EXPECT_EQ(plan.num_splits, equal.num_splits) << batch;
            // Short sequences use fewer of the splits; all blocks of a cluster are there anyway.
            EXPECT_EQ(plan.min_split_keys > 0, plan.num_splits > 1 && !plan.clustered) << batch;
        }
}

TEST(DecodePlan, DivisorsDivide) {
    for (const int64_t value : {1, 2, 3, 5, 7, 8, 31, 48, 96, 640, 65535, 65537, 1 << 20, 1000003, 2147483647})
        for (const int64_t n : {0, 1, 2, 47, 48, 95, 96, 65534, 65535, 131070, 1 << 30, 2147483646, 2147483647})
            EXPECT_EQ(Divisor::of(value).divide(static_cast<uint32_t>(n)), n / value) << n << ' ' << value;
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
