// The score modifiers: each term by its formula, their order, and the derivative by finite differences.
#include "math/score.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tilewise {
namespace {

TEST(Score, PlainScoreIsScaled) {
    const ScoreModifier m{.softmax_scale = 0.125f};
    EXPECT_TRUE(is_plain(m));
    EXPECT_EQ(modified_score(m, 16.0, 3, 5), 2.0);
    EXPECT_EQ(score_derivative(m, 16.0), 0.125);
}

TEST(Score, SoftcapBoundsTheScore) {
    const ScoreModifier m{.softmax_scale = 0.5f, .softcap = 20.0f};
    EXPECT_FALSE(is_plain(m));
    EXPECT_DOUBLE_EQ(modified_score(m, 30.0, 0, 0), 20.0 * std::tanh(15.0 / 20.0));
    EXPECT_DOUBLE_EQ(modified_score(m, 1e9, 0, 0), 20.0);
    EXPECT_DOUBLE_EQ(modified_score(m, -1e9, 0, 0), -20.0);
    EXPECT_EQ(score_derivative(m, 1e9), 0.0);
}

TEST(Score, AlibiCountsDistanceFromTheLastKeyBackwards) {
    const ScoreModifier m{.softmax_scale = 1.0f, .alibi_slope = 0.25f, .alibi_offset = 3};  // seqlen_k - seqlen_q = 3
    EXPECT_FALSE(is_plain(m));
    EXPECT_EQ(alibi_term<double>(m, 2, 5), 0.0);  // row 2 stands at key 5
    EXPECT_EQ(alibi_term<double>(m, 2, 1), -1.0);
    EXPECT_EQ(alibi_term<double>(m, 2, 9), -1.0);  // keys ahead are as far as keys behind
    EXPECT_EQ(modified_score(m, 10.0, 2, 1), 9.0);
}

// Softcap acts on the scaled product alone: a bias under it would be capped away.
TEST(Score, AlibiComesAfterSoftcap) {
    const ScoreModifier m{.softmax_scale = 1.0f, .softcap = 5.0f, .alibi_slope = 2.0f};
    EXPECT_DOUBLE_EQ(modified_score(m, 3.0, 0, 100), 5.0 * std::tanh(3.0 / 5.0) - 200.0);
}

TEST(Score, DerivativeMatchesFiniteDifferences) {
    constexpr double kStep = 1e-5;
    for (const float scale : {0.0f, 0.125f, 1.0f})
        for (const float softcap : {0.0f, 1.0f, 30.0f})
            for (const float slope : {0.0f, 0.5f})
                for (double product = -40.0; product <= 40.0; product += 0.7) {
                    const ScoreModifier m{scale, softcap, slope, 2};
                    const double difference =
                        modified_score(m, product + kStep, 4, 1) - modified_score(m, product - kStep, 4, 1);
                    EXPECT_NEAR(score_derivative(m, product), difference / (2 * kStep), 1e-7)
                        << "scale " << scale << " softcap " << softcap << " product " << product;
                }
}

}  // namespace
}  // namespace tilewise
