// The oracle's forward pass on cases small enough to do by hand, and the ways to lay the same sequence out: ragged, paged, padded.
#include <cmath>

#include "kernel_call.hpp"

namespace tilewise::test {
namespace {

constexpr DType kF64 = DType::kF64;

// One head, head_dim 1 and scale 1: the score of a pair is q * k.
KernelCall scalar_call(const Values& q, const Values& k, const Values& v) {
    const auto rows = static_cast<int64_t>(q.size()), keys = static_cast<int64_t>(k.size());
    KernelCall call(Op::kForward);
    call.set(Arg::kQ, kF64, {1, rows, 1, 1}, q).set(Arg::kK, kF64, {1, keys, 1, 1}, k);
    call.set(Arg::kV, kF64, {1, keys, 1, 1}, v).set(Arg::kO, kF64, {1, rows, 1, 1});
    call.set(Arg::kLse, kF64, {1, 1, rows});
    call.problem.score.has_softmax_scale = true;
    call.problem.score.softmax_scale = 1.0f;
    return call;
}

void expect_forward(KernelCall& call, const Values& o, const Values& lse) {
    call.run("cpu_reference_forward");
    expect_near(call.values(Arg::kO), o, 1e-12, "o");
    expect_near(call.values(Arg::kLse), lse, 1e-12, "lse");
}

TEST(ReferenceForward, WeighsTwoKeysByTheirScores) {
    KernelCall call = scalar_call({1}, {0, std::log(3.0)}, {4, 8});
    expect_forward(call, {7}, {std::log(4.0)});
}

TEST(ReferenceForward, DefaultScaleIsInverseRootOfHeadDim) {
    KernelCall call(Op::kForward);
    call.set(Arg::kQ, kF64, {1, 1, 1, 4}, {1, 1, 1, 1}).set(Arg::kK, kF64, {1, 2, 1, 4}, {0, 0, 0, 0, 1, 1, 1, 1});
    call.set(Arg::kV, kF64, {1, 2, 1, 2}, {0, 1, 1, 0}).set(Arg::kO, kF64, {1, 1, 1, 2});
    call.run("cpu_reference_forward");
    const double p = std::exp(2.0) / (1 + std::exp(2.0));
    expect_near(call.values(Arg::kO), {p, 1 - p}, 1e-12);
}

TEST(ReferenceForward, CausalAlignsToTheEndOrToTheStart) {
    KernelCall call = scalar_call({0, 0}, {0, 0, 0}, {1, 2, 6});
    call.problem.mask.window_right = 0;
    expect_forward(call, {1.5, 3}, {std::log(2.0), std::log(3.0)});
    call.problem.mask.top_left = true;
    expect_forward(call, {1, 1.5}, {0, std::log(2.0)});
}

TEST(ReferenceForward, RowWithoutKeysIsZeroAndMinusInfinity) {
    KernelCall call = scalar_call({1, 1, 1}, {5}, {9});
    call.problem.mask.window_right = 0;
    expect_forward(call, {0, 0, 9}, {-kInf, -kInf, 5});
    call.set(Arg::kSink, DType::kF32, {1}, {0.5});
    call.run("cpu_reference_forward");
    EXPECT_EQ(call.at(Arg::kLse, 0), 0.5);
    EXPECT_EQ(call.at(Arg::kO, 0), 0.0);
}

TEST(ReferenceForward, NoKeysAtAll) {
    KernelCall call = scalar_call({1, 2}, {}, {});
    expect_forward(call, {0, 0}, {-kInf, -kInf});
}

TEST(ReferenceForward, SinkTakesItsShare) {
    KernelCall call = scalar_call({0}, {7}, {10});
    call.set(Arg::kSink, DType::kF32, {1}, {0});
    expect_forward(call, {5}, {std::log(2.0)});
}

TEST(ReferenceForward, SoftcapAlibiAndBiasInThisOrder) {
    KernelCall call = scalar_call({1}, {3, -2}, {1, 0});
    call.problem.score.softcap = 2.0f;
    call.set(Arg::kAlibiSlopes, DType::kF32, {1}, {0.5}).set(Arg::kBias, DType::kF32, {1, 1, 1, 2}, {0.25, 1});
    const double first = 2 * std::tanh(1.5) - 0.5 + 0.25, second = 2 * std::tanh(-1.0) + 1;
    const double lse = std::log(std::exp(first) + std::exp(second));
    expect_forward(call, {std::exp(first - lse)}, {lse});
}

TEST(ReferenceForward, VeryNegativeScoresAreNotAMask) {
    KernelCall call = scalar_call({-1e6}, {1, 1}, {2, 4});
    expect_forward(call, {3}, {-1e6 + std::log(2.0)});
}

TEST(ReferenceForward, BiasOfMinusInfinityHidesKeys) {
    KernelCall call = scalar_call({1, 1}, {1, 2}, {3, 5});
    call.set(Arg::kBias, DType::kF32, {1, 1, 2, 2}, {0, -kInf, -kInf, -kInf});
    expect_forward(call, {3, 0}, {1, -kInf});
}

TEST(ReferenceForward, HiddenKeysAreNeverRead) {
    KernelCall call = scalar_call({1, 1}, {1, kNaN, 1}, {2, kNaN, 4});
    call.set(Arg::kMask, DType::kBool, {1, 1, 2, 3}, {1, 0, 1, 1, 0, 0});
    expect_forward(call, {3, 2}, {1 + std::log(2.0), 1});
    call.set(Arg::kMask, DType::kBits, {1, 1, 2, 1}, {0b101, 0b001});
    expect_forward(call, {3, 2}, {1 + std::log(2.0), 1});
}

TEST(ReferenceForward, NaNInAKeyStaysWithTheRowsThatSeeIt) {
    KernelCall call = scalar_call({1, 1, 1}, {0, kNaN, 0}, {2, 3, 4});
    call.problem.mask.window_left = 0;
    call.problem.mask.window_right = 0;
    expect_forward(call, {2, kNaN, 4}, {0, kNaN, 0});
}

TEST(ReferenceForward, WindowChunkPrefixAndExplicitIntervals) {
    const Values zeros(4, 0.0), v{1, 10, 100, 1000};
    const auto output = [&](const std::function<void(KernelCall&)>& configure) {
        KernelCall call = scalar_call(zeros, zeros, v);
        configure(call);
        call.run("cpu_reference_forward");
        Values sums = call.values(Arg::kO);  // mean of the visible values times their number
        for (size_t i = 0; i < sums.size(); ++i) sums[i] *= std::exp(call.at(Arg::kLse, static_cast<int64_t>(i)));
        return sums;
    };
    expect_near(output([](KernelCall& c) {
                    c.problem.mask.window_left = 1;
                    c.problem.mask.window_right = 1;
                }),
                {11, 111, 1110, 1100}, 1e-9, "window");
    expect_near(output([](KernelCall& c) { c.problem.mask.chunk = 2; }), {11, 11, 1100, 1100}, 1e-9, "chunk");
    expect_near(output([](KernelCall& c) {
                    c.problem.mask.window_right = 0;
                    c.set_ints(Arg::kPrefixLens, {3});
                }),
                {111, 111, 111, 1111}, 1e-9, "prefix");
    expect_near(output([](KernelCall& c) {
                    c.set_ints(Arg::kKeyBegin, {1, 4}, {0, 1, 3, -5}).set_ints(Arg::kKeyEnd, {1, 4}, {2, 2, 99, 1});
                }),
                {11, 10, 1000, 1}, 1e-9, "intervals");
}

TEST(ReferenceForward, DropoutFollowsPhiloxAndRescales) {
    const size_t keys = 40;
    Values v(keys);
    std::iota(v.begin(), v.end(), 1.0);
    KernelCall call = scalar_call({0}, Values(keys, 0.0), v);
    call.problem.score.dropout_p = 0.25f;
    call.problem.score.dropout_seed = 7;
    call.problem.score.dropout_offset = 11;
    double expected = 0;
    for (size_t j = 0; j < keys; ++j)
        if (dropout_keeps(philox_key(7, 11), dropout_threshold(0.25f), 0, 0, static_cast<uint32_t>(j)))
            expected += v[j] / 40 / 0.75;
    expect_forward(call, {expected}, {std::log(40.0)});
}

// A batch of three sequences with 3, 0 and 2 queries on 4, 2 and 0 keys; 4 query heads on 2 key heads, head_dim 3, head_dim_v 2.
struct Lengths {
    int q, k;
};
constexpr Lengths kBatch[] = {{3, 4}, {0, 2}, {2, 0}};

KernelCall one_sequence(size_t index) {
    const auto [rows, keys] = kBatch[index];
    KernelCall call(Op::kForward);
    call.set(Arg::kQ, kF64, {1, rows, 4, 3}, random_values(static_cast<size_t>(rows) * 12, index));
    call.set(Arg::kK, kF64, {1, keys, 2, 3}, random_values(static_cast<size_t>(keys) * 6, 10 + index));
    call.set(Arg::kV, kF64, {1, keys, 2, 2}, random_values(static_cast<size_t>(keys) * 4, 20 + index));
    call.set(Arg::kO, kF64, {1, rows, 4, 2}).set(Arg::kLse, kF64, {1, 4, rows});
    call.problem.mask.window_right = 0;
    return call;
}

Values joined(Arg arg) {
    Values all;
    for (size_t i = 0; i < 3; ++i) {
        const KernelCall call = one_sequence(i);
        if (call.count(arg) == 0) continue;
        const Values part = call.values(arg);
        all.insert(all.end(), part.begin(), part.end());
    }
    return all;
}

TEST(ReferenceForward, RaggedEqualsEachSequenceAlone) {
    KernelCall ragged(Op::kForward);
    Values q = joined(Arg::kQ);
    q.resize(6 * 12, kNaN);  // one row behind the last sequence
    ragged.set(Arg::kQ, kF64, {6, 4, 3}, q).set(Arg::kK, kF64, {6, 2, 3}, joined(Arg::kK));
    ragged.set(Arg::kV, kF64, {6, 2, 2}, joined(Arg::kV)).set(Arg::kO, kF64, {6, 4, 2}).set(Arg::kLse, kF64, {4, 6});
    ragged.set_ints(Arg::kCuSeqlensQ, {0, 3, 3, 5}).set_ints(Arg::kCuSeqlensK, {0, 4, 6, 6});
    ragged.problem.mask.window_right = 0;
    ragged.run("cpu_reference_forward");
    int64_t first = 0;
    for (size_t i = 0; i < 3; ++i) {
        KernelCall alone = one_sequence(i);
        alone.run("cpu_reference_forward");
        for (int64_t j = 0; j < kBatch[i].q * 8; ++j)
            EXPECT_EQ(ragged.at(Arg::kO, first * 8 + j), alone.at(Arg::kO, j));
        for (int64_t head = 0; head < 4; ++head)
            for (int64_t row = 0; row < kBatch[i].q; ++row)
                EXPECT_EQ(ragged.at(Arg::kLse, head * 6 + first + row), alone.at(Arg::kLse, head * kBatch[i].q + row));
        first += kBatch[i].q;
    }
    for (int64_t j = 0; j < 8; ++j) EXPECT_TRUE(std::isnan(ragged.at(Arg::kO, 5 * 8 + j)));
}

TEST(ReferenceForward, PagedWithPaddingEqualsDense) {
    KernelCall dense = one_sequence(0);
    dense.run("cpu_reference_forward");
    // Keys 0..3 lie at rows 2..5 behind two rows of padding: pages of 2 rows, in the order 3, 0, 2; the rest is NaN.
    KernelCall paged = one_sequence(0);
    const Values k = dense.values(Arg::kK), v = dense.values(Arg::kV);
    paged.set(Arg::kK, kF64, {4, 2, 2, 3}).set(Arg::kV, kF64, {4, 2, 2, 2});
    paged.set_ints(Arg::kPageTable, {2, 4}, {1, 1, 1, 1, 3, 0, 2, 1});
    const int64_t first_row_of_page[] = {3 * 2, 0 * 2, 2 * 2};
    for (int64_t key = 0; key < 4; ++key) {
        const int64_t row = first_row_of_page[(key + 2) / 2] + key % 2;
        for (int64_t i = 0; i < 6; ++i) paged.put(Arg::kK, row * 6 + i, k[static_cast<size_t>(key * 6 + i)]);
        for (int64_t i = 0; i < 4; ++i) paged.put(Arg::kV, row * 4 + i, v[static_cast<size_t>(key * 4 + i)]);
    }
    paged.set_ints(Arg::kCacheBatchIdx, {1}).set_ints(Arg::kSequsedK, {6}).set_ints(Arg::kLeftpadK, {2});
    paged.run("cpu_reference_forward");
    EXPECT_EQ(paged.values(Arg::kO), dense.values(Arg::kO));
    EXPECT_EQ(paged.values(Arg::kLse), dense.values(Arg::kLse));
}

// Below the checks of a launch, as on a device, where nobody has read the ids.
TEST(ReferenceForward, PageIdsThatLieReadTheLastPage) {
    KernelCall right = one_sequence(0);
    right.set(Arg::kK, kF64, {3, 2, 2, 3}, random_values(36, 1)).set(Arg::kV, kF64, {3, 2, 2, 2}, random_values(24, 2));
    right.set_ints(Arg::kPageTable, {1, 4}, {0, 2, 2, 2});
    KernelCall wrong = right;
    wrong.set_ints(Arg::kPageTable, {1, 4}, {0, 3, -1, 2147483647});
    for (KernelCall* call : {&right, &wrong}) call->run("cpu_reference_forward");
    EXPECT_EQ(wrong.values(Arg::kO), right.values(Arg::kO));
    EXPECT_EQ(wrong.values(Arg::kLse), right.values(Arg::kLse));
}

TEST(ReferenceForward, RowsPastSequsedAreNotWritten) {
    KernelCall call = scalar_call({1, kNaN}, {1, kNaN}, {2, kNaN});
    call.set_ints(Arg::kSequsedQ, {1}).set_ints(Arg::kSequsedK, {1});
    expect_forward(call, {2, kNaN}, {1, kNaN});
}

TEST(ReferenceForward, RoundsEachOutputOnce) {
    KernelCall call = scalar_call({1}, {0, std::log(3.0)}, {1, 3});
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const Arg arg : {Arg::kQ, Arg::kK, Arg::kV}) {
            const TensorDesc tensor = call.problem[arg];
            call.set(arg, dtype, {tensor.shape.begin(), tensor.shape.begin() + 4}, call.values(arg));
        }
        call.set(Arg::kO, dtype, {1, 1, 1, 1}).set(Arg::kLse, DType::kF32, {1, 1, 1});
        call.run("cpu_reference_forward");
        const double score = call.at(Arg::kK, 1);
        const double o = (1 + 3 * std::exp(score)) / (1 + std::exp(score));
        double rounded;
        std::vector<unsigned char> cell(4);
        cpu::store_element(cell.data(), dtype, 0, o);
        rounded = cpu::load_element(cell.data(), dtype, 0);
        EXPECT_EQ(call.at(Arg::kO, 0), rounded) << name_of(dtype);
    }
}

}  // namespace
}  // namespace tilewise::test
