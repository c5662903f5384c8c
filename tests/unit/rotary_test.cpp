// Rotary embedding of a pair: a rotation, whose product of two rows depends on the distance of their positions only.
#include "math/rotary.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace tilewise {
namespace {

TEST(Rotary, PairsCoverTheRotatedPartOnce) {
    for (const bool interleaved : {false, true})
        for (const int32_t rotary_dim : {2, 8, 64}) {
            std::set<int32_t> seen;
            for (int32_t t = 0; t < rotary_dim / 2; ++t) {
                const RotaryPair pair = rotary_pair(t, rotary_dim, interleaved);
                EXPECT_EQ(pair.second - pair.first, interleaved ? 1 : rotary_dim / 2);
                EXPECT_TRUE(seen.insert(pair.first).second);
                EXPECT_TRUE(seen.insert(pair.second).second);
            }
            EXPECT_EQ(*seen.begin(), 0);
            EXPECT_EQ(*seen.rbegin(), rotary_dim - 1);
            EXPECT_EQ(static_cast<int32_t>(seen.size()), rotary_dim);
        }
}

TEST(Rotary, AQuarterTurn) {
    const Rotated<float> turned = rotate(3.0f, 5.0f, 0.0f, 1.0f);
    EXPECT_EQ(turned.first, -5.0f);
    EXPECT_EQ(turned.second, 3.0f);
    const Rotated<float> still = rotate(3.0f, 5.0f, 1.0f, 0.0f);
    EXPECT_EQ(still.first, 3.0f);
    EXPECT_EQ(still.second, 5.0f);
}

TEST(Rotary, ProductDependsOnTheDistanceOnly) {
    const auto turn = [](double x0, double x1, double angle) {
        return rotate(x0, x1, std::cos(angle), std::sin(angle));
    };
    const auto product = [&](double query_position, double key_position) {
        const Rotated<double> q = turn(0.7, -1.3, 0.1 * query_position), k = turn(2.1, 0.4, 0.1 * key_position);
        return q.first * k.first + q.second * k.second;
    };
    for (const double shift : {1.0, 17.0, 4000.0}) EXPECT_NEAR(product(9, 4), product(9 + shift, 4 + shift), 1e-10);
    EXPECT_GT(std::abs(product(9, 4) - product(10, 4)), 1e-3);
}

TEST(Rotary, QueriesStandAtTheirPlaceOnlyUnderAPositionalMask) {
    EXPECT_EQ(rotary_query_position(100, 3, true), 103);
    EXPECT_EQ(rotary_query_position(100, 3, false), 100);
}

}  // namespace
}  // namespace tilewise
