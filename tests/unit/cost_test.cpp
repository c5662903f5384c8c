// Counting work: visible pairs against the mask itself, the FLOP formulas, and bytes that a batch can reach.
#include "core/cost.hpp"

#include <gtest/gtest.h>

#include "fake_kernels.hpp"
#include "sample_problems.hpp"

namespace tilewise {
namespace {

Problem square(int64_t seqlen, MaskSpec mask) {
    Problem p;
    p[Arg::kQ] = contiguous(DType::kBF16, {2, seqlen, 4, 64});
    p[Arg::kK] = contiguous(DType::kBF16, {2, seqlen, 4, 64});
    p[Arg::kV] = contiguous(DType::kBF16, {2, seqlen, 4, 64});
    p[Arg::kO] = contiguous(DType::kBF16, {2, seqlen, 4, 64});
    p.mask = mask;
    return p;
}

double pairs_of(const Problem& p) { return visible_pairs(p, sizes_of(p)); }

TEST(Cost, PairsAreExactForShortSequences) {
    EXPECT_EQ(pairs_of(square(100, {})), 2 * 100.0 * 100);
    EXPECT_EQ(pairs_of(square(100, {.window_right = 0})), 2 * (100.0 * 101 / 2));
    EXPECT_EQ(pairs_of(square(100, {.window_left = 9, .window_right = 0})), 2 * (100.0 * 10 - 45));
    EXPECT_EQ(pairs_of(square(100, {.chunk = 10})), 2 * 10.0 * 100);
}

TEST(Cost, PairsAreCloseForLongSequences) {
    const double causal = pairs_of(square(100000, {.window_right = 0}));
    EXPECT_NEAR(causal / (1e5 * 1e5), 1.0, 0.01);
    EXPECT_NEAR(pairs_of(square(100000, {.window_left = 1023, .window_right = 0})) / (2 * 1e5 * 1024), 1.0, 0.02);
}

TEST(Cost, EmptyProblemsHaveNoPairs) {
    EXPECT_EQ(pairs_of(square(0, {.window_right = 0})), 0);
    Problem p = square(4, {});
    for (const Arg arg : {Arg::kQ, Arg::kK, Arg::kV, Arg::kO}) p[arg].shape[0] = 0;
    EXPECT_EQ(pairs_of(p), 0);
    EXPECT_EQ(work_of(p, sizes_of(p)).bytes, 0);
}

TEST(Cost, FlopsOfForwardAndBackward) {
    Problem p = square(128, {});
    const double forward = work_of(p, sizes_of(p)).flops;
    EXPECT_EQ(forward, 4.0 * 2 * 4 * 128 * 128 * 64);
    p.op = Op::kBackward;
    EXPECT_EQ(work_of(p, sizes_of(p)).flops, 2.5 * forward);
}

TEST(Cost, OnlyReachablePagesCount) {
    Problem p = samples::paged_forward();
    const double small_pool = work_of(p, sizes_of(p)).bytes;
    p[Arg::kK] = contiguous(DType::kBF16, {100000, 4, 2, 8});
    p[Arg::kV] = contiguous(DType::kBF16, {100000, 4, 2, 10});
    const double reach = 3 * 20 * 2 * (8 + 10) * 2;  // batch x keys x heads x dims x bytes
    EXPECT_LE(work_of(p, sizes_of(p)).bytes, small_pool + reach);
}

TEST(Cost, AppendMovesTheNewKeysOnly) {
    Problem p = samples::append();
    const double bytes = work_of(p, sizes_of(p)).bytes;
    p[Arg::kK].shape[1] = p[Arg::kV].shape[1] = 7000;
    p[Arg::kRotaryCos].shape[0] = p[Arg::kRotarySin].shape[0] = 100000;
    EXPECT_EQ(work_of(p, sizes_of(p)).bytes, bytes);
    EXPECT_GE(bytes, 2 * 3 * 2 * 2 * (8 + 10) * 2);  // read and written: batch x rows x heads x dims x bytes
}

TEST(Cost, ABroadcastAxisIsReadOnce) {
    Problem p = samples::full_forward();
    const double full = work_of(p, sizes_of(p)).bytes;
    p[Arg::kBias].stride = {0, 0, 7, 1};
    EXPECT_EQ(full - work_of(p, sizes_of(p)).bytes, (3 * 6 - 1) * 5 * 7 * 4.0);
}

TEST(Cost, RooflineIsTheSlowerOfTheTwoAndATenthOfTheOther) {
    EXPECT_DOUBLE_EQ(roofline_seconds({100, 10}, {10, 10}), 10.1);
    EXPECT_DOUBLE_EQ(roofline_seconds({10, 100}, {10, 10}), 10.1);
    const Rates h200 = cuda_rates(fake::recorded("h200"));
    EXPECT_EQ(h200.bytes_per_second, 4.8e12);
    EXPECT_GT(cpu_rates(Isa::kAvx512Bf16, DType::kBF16, 1).flops_per_second,
              cpu_rates(Isa::kAvx512Bf16, DType::kF32, 1).flops_per_second);
    EXPECT_GT(cpu_rates(Isa::kAvx2, DType::kF32, 4).flops_per_second,
              cpu_rates(Isa::kAvx2, DType::kF32, 1).flops_per_second);
}

}  // namespace
}  // namespace tilewise
