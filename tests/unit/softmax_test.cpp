// The softmax state as an algebra: identity, associativity, order of the parts, and the edges (no key, huge scores, NaN, infinity).
#include "math/online_softmax.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tilewise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using State = SoftmaxState<double>;

State state_of(const std::vector<double>& scores, size_t begin, size_t end) {
    State state;
    for (size_t i = begin; i < end; ++i) state = merge(state, State{scores[i], 1.0});
    return state;
}

double lse_by_definition(const std::vector<double>& scores) {
    double maximum = -kInfinity, sum = 0;
    for (const double s : scores) maximum = std::max(maximum, s);
    for (const double s : scores) sum += std::exp(s - maximum);
    return maximum + std::log(sum);
}

std::vector<double> random_scores(size_t count, double scale, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0.0, scale);
    std::vector<double> scores(count);
    for (double& s : scores) s = normal(random);
    return scores;
}

TEST(Softmax, AnEmptyStateIsTheIdentity) {
    const State some{3.5, 2.25};
    for (const State& merged : {merge(State{}, some), merge(some, State{})}) {
        EXPECT_EQ(merged.row_max, some.row_max);
        EXPECT_EQ(merged.row_sum, some.row_sum);
    }
    const State nothing = merge(State{}, State{});
    EXPECT_EQ(nothing.row_max, -kInfinity);
    EXPECT_EQ(nothing.row_sum, 0.0);
}

TEST(Softmax, ARowWithoutKeysHasNoOutputAndNegativeInfiniteLse) {
    EXPECT_EQ(lse_of(State{}), -kInfinity);
    EXPECT_EQ(lse_of(SoftmaxState<float>{}), negative_infinity());
    EXPECT_EQ(inverse_sum(0.0), 0.0);
    EXPECT_EQ(shift_of(-kInfinity), 0.0);
    EXPECT_EQ(shift_of(-1e5), -1e5);
    EXPECT_EQ(merge_lse(-kInfinity, -kInfinity), -kInfinity);
    EXPECT_EQ(merge_weight(-kInfinity, -kInfinity), 0.0);
    // Scores that the mask replaced change nothing, before or after the first key.
    State state = merge(State{}, State{-kInfinity, 0.0});
    state = merge(state, State{1.0, 1.0});
    state = merge(state, State{-kInfinity, 0.0});
    EXPECT_EQ(lse_of(state), 1.0);
}

TEST(Softmax, AnyPartitionGivesTheSame) {
    const std::vector<double> scores = random_scores(97, 30.0, 1);
    const double expected = lse_by_definition(scores);
    std::mt19937 random(2);
    for (int n = 0; n < 200; ++n) {
        const size_t a = random() % 98, b = a + random() % (98 - a);
        const State first = state_of(scores, 0, a), second = state_of(scores, a, b), third = state_of(scores, b, 97);
        EXPECT_NEAR(lse_of(merge(merge(first, second), third)), expected, 1e-12);
        EXPECT_NEAR(lse_of(merge(first, merge(second, third))), expected, 1e-12);
        EXPECT_NEAR(lse_of(merge(merge(third, first), second)), expected, 1e-12);
        EXPECT_NEAR(merge_lse(lse_of(first), merge_lse(lse_of(second), lse_of(third))), expected, 1e-12);
    }
}

TEST(Softmax, WeightsOfThePartsSumToOne) {
    const std::vector<double> scores = random_scores(40, 5.0, 3);
    const double a = lse_of(state_of(scores, 0, 11)), b = lse_of(state_of(scores, 11, 40));
    const double merged = merge_lse(a, b);
    EXPECT_NEAR(merge_weight(a, merged) + merge_weight(b, merged), 1.0, 1e-14);
    EXPECT_EQ(merge_weight(-kInfinity, merged), 0.0);
}

TEST(Softmax, HugeScoresOfEitherSign) {
    for (const float center : {1e5f, -1e5f, 3e38f, -3e38f}) {
        SoftmaxState<float> state;
        for (int n = 0; n < 3; ++n) state = merge(state, SoftmaxState<float>{center, 1.0f});
        EXPECT_EQ(state.row_max, center);
        EXPECT_EQ(state.row_sum, 3.0f);
        EXPECT_FLOAT_EQ(lse_of(state), center + std::log(3.0f));
    }
    const SoftmaxState<float> both = merge(SoftmaxState<float>{-1e5f, 1.0f},
                                           merge(SoftmaxState<float>{1e5f, 1.0f}, SoftmaxState<float>{-1e5f, 1.0f}));
    EXPECT_EQ(lse_of(both), 1e5f);
}

TEST(Softmax, NanReachesTheRowThatSeesIt) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const State some{1.0, 1.0};
    EXPECT_TRUE(std::isnan(lse_of(merge(some, State{nan, 1.0}))));
    EXPECT_TRUE(std::isnan(lse_of(merge(State{nan, 1.0}, some))));
    EXPECT_TRUE(std::isnan(lse_of(merge(State{nan, 1.0}, State{}))));
    EXPECT_TRUE(std::isnan(lse_of(merge(some, State{kInfinity, 1.0}))));  // exp(inf - inf)
    EXPECT_TRUE(std::isnan(inverse_sum(nan)));
}

TEST(Softmax, ASinkEntersTheSum) {
    const State some{2.0, 1.5};
    EXPECT_NEAR(lse_of(with_sink(some, 1.0)), std::log(1.5 * std::exp(2.0) + std::exp(1.0)), 1e-14);
    EXPECT_EQ(lse_of(with_sink(State{}, 0.75)), 0.75);  // a row without keys: the sink is all there is
    EXPECT_EQ(lse_of(with_sink(State{}, -kInfinity)), -kInfinity) << "a sink of -inf is no sink";
}

}  // namespace
}  // namespace tilewise
