// The tile functions around the softmax, for every instruction set of this machine, against doubles: score modifiers,
// the online softmax and the gradient; the accuracy of exp2 and tanh inside them; NaN behind a mask; rows that see
// nothing.
#include <algorithm>
#include <array>

#include "simd_support.hpp"

namespace tilewise::test {
namespace {

using cpu::GradientTile;
using cpu::KeepTile;
using cpu::ScoreTile;
using cpu::SoftmaxTile;

constexpr double kLog2E = 1.44269504088896340736;

// A score tile whose hidden columns hold NaN.
struct Scores {
    Scores(Random& random, int rows, int columns, float scale)
        : num_rows(rows), num_columns(columns), stride(columns + 16) {
        values.assign(static_cast<size_t>(rows * stride), kNaN);
        for (int r = 0; r < rows; ++r) {
            const int begin = random.in(0, columns), end = random.in(begin, columns);
            visible.push_back({begin, end});
            for (int c = begin; c < end; ++c) values[index(r, c)] = random.normal() * scale;
        }
    }
    size_t index(int row, int column) const { return static_cast<size_t>(row * stride + column); }
    bool sees(int row, int column) const {
        const Interval v = visible[static_cast<size_t>(row)];
        return column >= v.begin && column < v.end;
    }
    int num_rows, num_columns, stride;
    std::vector<float> values;
    std::vector<Interval> visible;
};

struct RowState {
    explicit RowState(int rows)
        : maximum(static_cast<size_t>(rows), -kInf), sum(static_cast<size_t>(rows), 0.0f), rescale(sum) {}
    std::vector<float> maximum, sum, rescale;
};

class SoftmaxTest : public TileOpsTest {
protected:
    SoftmaxTile tile_of(Scores& scores, RowState& state) const {
        SoftmaxTile tile;
        tile.scores = scores.values.data();
        tile.probabilities = scores.values.data();
        tile.row_stride = scores.stride;
        tile.visible = scores.visible.data();
        tile.num_rows = scores.num_rows;
        tile.num_columns = scores.num_columns;
        tile.row_max = state.maximum.data();
        tile.row_sum = state.sum.data();
        return tile;
    }
    // exp2(x), as the softmax computes it for x <= 0.
    std::vector<float> exp2_of(std::vector<float> x) const {
        const size_t count = x.size();
        x.resize(static_cast<size_t>(round_up(static_cast<int64_t>(count), ops().width)), kNaN);
        const Interval all{0, static_cast<int>(count)};
        float maximum = 0.0f, sum = 0.0f, rescale = 0.0f;
        SoftmaxTile tile;
        tile.scores = x.data();
        tile.probabilities = x.data();
        tile.row_stride = static_cast<int64_t>(x.size());
        tile.visible = &all;
        tile.num_rows = 1;
        tile.num_columns = static_cast<int>(x.size());
        tile.row_max = &maximum;
        tile.row_sum = &sum;
        ops().softmax(tile, &rescale);
        return x;
    }
};

TEST_P(SoftmaxTest, Exp2IsWithinTwoUlp) {
    std::vector<float> x;
    for (int i = 0; i < 126 * 64; ++i) x.push_back(static_cast<float>(-i) / 64.0f - static_cast<float>(i % 7) * 1e-3f);
    const std::vector<float> y = exp2_of(x);
    double worst = 0.0;
    for (size_t i = 0; i < x.size(); ++i)
        if (x[i] > -126.0f) worst = std::max(worst, ulps(y[i], std::exp2(static_cast<double>(x[i]))));
    EXPECT_LE(worst, 2.0);
}

TEST_P(SoftmaxTest, Exp2OfExtremes) {
    const std::vector<float> y = exp2_of({0.0f, -127.0f, -150.0f, -1e30f, -kInf, kNaN, -1.0f, -2.0f});
    EXPECT_EQ(y[0], 1.0f);
    for (const size_t i : {1u, 2u, 3u, 4u}) EXPECT_EQ(y[i], 0.0f) << i;
    EXPECT_TRUE(std::isnan(y[5]));
    EXPECT_EQ(y[6], 0.5f);
    EXPECT_EQ(y[7], 0.25f);
}

TEST_P(SoftmaxTest, TilesInSequenceMakeOneSoftmax) {
    Random random(11);
    for (int round = 0; round < 20; ++round) {
        const int rows = random.in(1, 9), columns = random.in(1, 5) * ops().width;
        const float scale_log2 = 0.7f;
        const auto power = [&](double difference) { return std::exp2(difference * static_cast<double>(scale_log2)); };
        RowState state(rows);
        std::vector<double> sum(static_cast<size_t>(rows), 0.0), maximum(sum.size(), -INFINITY);
        std::vector<double> first(static_cast<size_t>(rows),
                                  0.0);  // the first visible score's share, rescaled as an output is
        std::vector<double> first_score(sum.size(), NAN);
        for (int piece = 0; piece < 3; ++piece) {
            Scores scores(random, rows, columns, piece == 2 ? 30.0f : 3.0f);
            const Scores before = scores;
            SoftmaxTile tile = tile_of(scores, state);
            tile.scale_log2 = scale_log2;
            ops().softmax(tile, state.rescale.data());
            for (int r = 0; r < rows; ++r) {
                const size_t row = static_cast<size_t>(r);
                first[row] *= static_cast<double>(state.rescale[row]);
                for (int c = 0; c < columns; ++c) {
                    if (!before.sees(r, c)) {
                        ASSERT_EQ(scores.values[scores.index(r, c)], 0.0f);
                        continue;
                    }
                    const double s = static_cast<double>(before.values[before.index(r, c)]);
                    const double p = power(s - static_cast<double>(state.maximum[row]));
                    ASSERT_NEAR(scores.values[scores.index(r, c)], p, 1e-5);
                    if (std::isnan(first_score[row])) {
                        first_score[row] = s;
                        first[row] = static_cast<double>(scores.values[scores.index(r, c)]);
                    }
                    if (s > maximum[row]) {
                        sum[row] *= power(maximum[row] - s);
                        maximum[row] = s;
                    }
                    sum[row] += power(s - maximum[row]);
                }
                if (std::isinf(maximum[row])) continue;
                EXPECT_EQ(state.maximum[row], maximum[row]);
                EXPECT_NEAR(state.sum[row], sum[row], 1e-5 * sum[row]);
                EXPECT_NEAR(first[row], power(first_score[row] - maximum[row]), 1e-5);
            }
        }
    }
}

TEST_P(SoftmaxTest, RowsWithoutKeysChangeNothing) {
    Random random(12);
    Scores scores(random, 2, 2 * ops().width, 1.0f);
    scores.visible = {{3, 3}, {0, 2}};
    scores.values[scores.index(1, 0)] = scores.values[scores.index(1, 1)] = -kInf;  // sees keys, all at -inf
    RowState state(2);
    ops().softmax(tile_of(scores, state), state.rescale.data());
    for (const size_t row : {0u, 1u}) {
        EXPECT_EQ(state.maximum[row], -kInf);
        EXPECT_EQ(state.sum[row], 0.0f);
        for (int c = 0; c < scores.num_columns; ++c)
            EXPECT_EQ(scores.values[scores.index(static_cast<int>(row), c)], 0.0f);
    }
    EXPECT_EQ(state.rescale[0], 1.0f);
}

TEST_P(SoftmaxTest, VisibleNaNReachesTheSum) {
    Random random(13);
    Scores scores(random, 1, 3 * ops().width, 1.0f);
    scores.visible = {{1, scores.num_columns - 1}};
    for (int c = 1; c < scores.num_columns - 1; ++c) scores.values[scores.index(0, c)] = 0.5f;
    scores.values[scores.index(0, ops().width + 1)] = kNaN;
    RowState state(1);
    ops().softmax(tile_of(scores, state), state.rescale.data());
    EXPECT_TRUE(std::isnan(state.sum[0]));
}

TEST_P(SoftmaxTest, HugeLogitsNeedNoSentinel) {
    for (const float logit : {-1e5f, 1e5f, 1.4e11f, -3e38f}) {
        Random random(14);
        Scores scores(random, 1, 2 * ops().width, 1.0f);
        scores.visible = {{0, 5}};
        for (int c = 0; c < 5; ++c) scores.values[scores.index(0, c)] = logit;
        RowState state(1);
        ops().softmax(tile_of(scores, state), state.rescale.data());
        EXPECT_EQ(state.sum[0], 5.0f) << logit;
    }
}

TEST_P(SoftmaxTest, DropoutAndRoundingComeAfterTheSum) {
    Random random(15);
    for (const DType rounding : {DType::kF32, DType::kF16, DType::kBF16}) {
        Scores scores(random, 4, 3 * ops().width, 1.0f);
        std::fill(scores.visible.begin(), scores.visible.end(), Interval{2, scores.num_columns - 3});
        for (int r = 0; r < 4; ++r)
            for (int c = 2; c < scores.num_columns - 3; ++c) scores.values[scores.index(r, c)] = random.normal();
        Scores plain = scores;
        RowState state(4), plain_state(4);
        ops().softmax(tile_of(plain, plain_state), plain_state.rescale.data());
        std::vector<uint8_t> keep(scores.values.size());
        for (uint8_t& byte : keep) byte = static_cast<uint8_t>(random.in(0, 1));
        SoftmaxTile tile = tile_of(scores, state);
        tile.rounding = rounding;
        tile.dropout = KeepTile{keep.data(), scores.stride, 1.25f};
        ops().softmax(tile, state.rescale.data());
        EXPECT_EQ(state.sum, plain_state.sum);
        for (int r = 0; r < 4; ++r)
            for (int c = 0; c < scores.num_columns; ++c) {
                const size_t i = scores.index(r, c);
                const float dropped = keep[i] ? plain.values[i] * 1.25f : 0.0f;
                const float expected = rounding == DType::kF16    ? to_float(to_f16(dropped))
                                       : rounding == DType::kBF16 ? to_float(to_bf16(dropped))
                                                                  : dropped;
                ASSERT_EQ(scores.values[i], expected) << name_of(rounding) << " at " << r << ", " << c;
            }
    }
}

TEST_P(SoftmaxTest, Bf16FormatStoresTheRoundedValues) {
    Random random(16);
    Scores scores(random, 3, 2 * ops().width, 1.0f);
    Scores wide = scores;
    RowState state(3), wide_state(3);
    SoftmaxTile tile = tile_of(wide, wide_state);
    tile.rounding = DType::kBF16;
    ops().softmax(tile, wide_state.rescale.data());
    std::vector<BF16> narrow(scores.values.size());
    tile = tile_of(scores, state);
    tile.rounding = DType::kBF16;
    tile.format = DType::kBF16;
    tile.probabilities = narrow.data();
    ops().softmax(tile, state.rescale.data());
    for (int r = 0; r < 3; ++r)
        for (int c = 0; c < scores.num_columns; ++c)
            ASSERT_EQ(to_float(narrow[scores.index(r, c)]), wide.values[wide.index(r, c)]);
}

TEST_P(SoftmaxTest, TanhOfSoftcapIsWithinAFewUlp) {
    double worst = 0.0, worst_derivative = 0.0;
    std::vector<float> x;
    for (int i = -4000; i <= 4000; ++i) x.push_back(static_cast<float>(i) * 2.5e-3f);
    for (const float small : {1e-30f, 1e-6f, 0.6249f, 0.6251f, 30.0f, 1e30f, -kInf, kInf}) x.push_back(small);
    const Interval all{0, static_cast<int>(x.size())};
    std::vector<float> y = x, derivative(round_up(static_cast<int64_t>(x.size()), 16));
    y.resize(derivative.size());
    ScoreTile tile;
    tile.scores = y.data();
    tile.visible = &all;
    tile.num_rows = 1;
    tile.softcap = 1.0f;
    tile.cap_derivative = derivative.data();
    ops().modify_scores(tile);
    for (size_t i = 0; i < x.size(); ++i) {
        const double expected = std::tanh(static_cast<double>(x[i]));
        if (x[i] != 0.0f) worst = std::max(worst, ulps(y[i], expected));
        worst_derivative =
            std::max(worst_derivative, std::abs(static_cast<double>(derivative[i]) - (1 - expected * expected)));
    }
    EXPECT_LE(worst, 4.0);
    EXPECT_LE(worst_derivative, 1e-6);
}

TEST_P(SoftmaxTest, ModifiersComeInTheOrderOfTheContract) {
    Random random(17);
    Scores scores(random, 5, 4 * ops().width, 4.0f);
    const Scores before = scores;
    std::vector<float> bias = random.normals(scores.values.size());
    std::vector<uint8_t> allowed(scores.values.size());
    for (uint8_t& byte : allowed) byte = static_cast<uint8_t>(random.in(0, 3));  // any byte but 0 is true
    const std::vector<float> slope = {0.0f, 0.1f, 0.5f, -0.25f, 1.0f}, position = {3.0f, -7.0f, 0.0f, 100.0f, 9.0f};
    ScoreTile tile;
    tile.scores = scores.values.data();
    tile.row_stride = scores.stride;
    tile.visible = scores.visible.data();
    tile.num_rows = scores.num_rows;
    tile.softmax_scale = 0.3f;
    tile.softcap = 2.0f;
    tile.alibi_slope = slope.data();
    tile.alibi_position = position.data();
    tile.bias = bias.data();
    tile.allowed = allowed.data();
    ops().modify_scores(tile);
    for (int r = 0; r < scores.num_rows; ++r)
        for (int c = 0; c < scores.num_columns; ++c) {
            if (!scores.sees(r, c)) continue;
            const size_t i = scores.index(r, c), row = static_cast<size_t>(r);
            const double capped = 2.0 * std::tanh(0.3 * static_cast<double>(before.values[i]) / 2.0);
            const double expected = capped -
                                    static_cast<double>(slope[row]) * std::abs(static_cast<double>(position[row]) - c) +
                                    static_cast<double>(bias[i]);
            if (allowed[i] == 0) {
                EXPECT_EQ(scores.values[i], -kInf);
            } else {
                EXPECT_NEAR(scores.values[i], expected, 2e-5);
            }
        }
}

TEST_P(SoftmaxTest, GradientMatchesItsFormula) {
    Random random(18);
    for (const bool with_dropout : {false, true}) {
        Scores scores(random, 7, 3 * ops().width, 2.0f);
        const Scores before = scores;
        std::vector<float> dp(scores.values.size(), kNaN), derivative = random.normals(dp.size());
        std::vector<uint8_t> keep(dp.size());
        for (size_t i = 0; i < dp.size(); ++i) {
            if (!std::isnan(scores.values[i])) dp[i] = random.normal();
            keep[i] = static_cast<uint8_t>(random.in(0, 1));
        }
        const std::vector<float> dp_before = dp, lse = random.normals(7), delta = random.normals(7);
        GradientTile tile;
        tile.scores = scores.values.data();
        tile.dp = dp.data();
        tile.cap_derivative = derivative.data();
        tile.row_stride = scores.stride;
        tile.visible = scores.visible.data();
        tile.num_rows = 7;
        tile.num_columns = scores.num_columns;
        tile.scale = 0.5f;
        if (with_dropout) tile.dropout = KeepTile{keep.data(), scores.stride, 1.5f};
        tile.lse = lse.data();
        tile.delta = delta.data();
        ops().gradient(tile);
        for (int r = 0; r < 7; ++r)
            for (int c = 0; c < scores.num_columns; ++c) {
                const size_t i = scores.index(r, c), row = static_cast<size_t>(r);
                double p = 0.0, ds = 0.0, factor = with_dropout ? (keep[i] ? 1.5 : 0.0) : 1.0;
                if (before.sees(r, c)) {
                    p = std::exp(0.5 * static_cast<double>(before.values[i]) - static_cast<double>(lse[row]));
                    ds = p * (factor * static_cast<double>(dp_before[i]) - static_cast<double>(delta[row])) *
                         static_cast<double>(derivative[i]);
                }
                ASSERT_NEAR(scores.values[i], p * factor, 1e-5 * (1 + p)) << r << ", " << c;
                ASSERT_NEAR(dp[i], ds, 1e-5 * (1 + std::abs(ds))) << r << ", " << c;
            }
    }
}

TEST_P(SoftmaxTest, RowsScaleExceptByOne) {
    Random random(19);
    std::vector<float> tile = random.normals(3 * 64);
    const std::vector<float> before = tile;
    const std::array<float, 3> factor = {0.5f, 1.0f, 0.0f};
    ops().scale_rows(tile.data(), 64, 3, 3 * ops().width, factor.data());
    for (int r = 0; r < 3; ++r)
        for (int c = 0; c < 3 * ops().width; ++c) {
            const size_t i = static_cast<size_t>(64 * r + c);
            ASSERT_EQ(tile[i], before[i] * factor[static_cast<size_t>(r)]);
        }
}

INSTANTIATE_TEST_SUITE_P(Isa, SoftmaxTest, ::testing::ValuesIn(runnable_isas()), isa_name);

}  // namespace
}  // namespace tilewise::test
