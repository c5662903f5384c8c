// Dropout's generator against the published vectors, and the decisions built on it: every column has its own bits, whoever asks
// in whatever order; the rate is right; each coordinate counts.
#include "math/philox.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <utility>

namespace tilewise {
namespace {

struct Vector {
    std::array<uint32_t, 4> counter;
    std::array<uint32_t, 2> key;
    std::array<uint32_t, 4> expected;
};

// Known answers of philox4x32-10 from the test suite of Random123.
constexpr Vector kVectors[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

TEST(Philox, KnownAnswers) {
    for (const Vector& v : kVectors) {
        const auto& c = v.counter;
        const PhiloxBlock block = philox_4x32_10(c[0], c[1], c[2], c[3], v.key[0], v.key[1]);
        for (size_t i = 0; i < 4; ++i) EXPECT_EQ(block.word[i], v.expected[i]) << i;
    }
}

// Eight columns share a block and no two of them its bits.
TEST(Philox, EveryColumnHasItsOwnBits) {
    std::set<std::pair<uint32_t, uint32_t>> places;
    for (uint32_t column = 0; column < 4096; ++column) {
        const uint32_t slot = dropout_slot(column);
        ASSERT_LT(slot, 8u);
        const uint32_t group = (column / 32) * 4 + (column % 8) / 2;
        EXPECT_TRUE(places.emplace(group, slot).second) << column;
    }
    EXPECT_EQ(places.size(), 4096u);
    const PhiloxBlock block{{0x22221111u, 0x44443333u, 0x66665555u, 0x88887777u}};
    for (uint32_t slot = 0; slot < 8; ++slot) EXPECT_EQ(dropout_bits(block, slot), 0x1111u * (slot + 1));
}

// A tile that reuses a block for the eight columns it serves decides as one that asks for each column.
TEST(Philox, TilesAgreeWithSingleColumns) {
    const PhiloxKey key = philox_key(1234, 56);
    const uint32_t threshold = dropout_threshold(0.3f);
    for (uint32_t row = 0; row < 8; ++row)
        for (uint32_t first = 0; first < 256; first += 32)
            for (uint32_t t = 0; t < 4; ++t) {
                const PhiloxBlock block = dropout_block(key, 7, row, first + 2 * t);
                for (const uint32_t offset : {0u, 1u, 8u, 9u, 16u, 17u, 24u, 25u}) {
                    const uint32_t column = first + 2 * t + offset;
                    EXPECT_EQ(dropout_bits(block, dropout_slot(column)) >= threshold,
                              dropout_keeps(key, threshold, 7, row, column));
                }
            }
}

TEST(Philox, RateIsWithinStatisticalBounds) {
    constexpr uint32_t kRows = 512, kColumns = 1024;
    constexpr double kCount = double{kRows} * kColumns;
    for (const float p : {0.0f, 0.1f, 0.5f, 0.9f}) {
        const PhiloxKey key = philox_key(42, 0);
        const uint32_t threshold = dropout_threshold(p);
        EXPECT_NEAR(threshold / 65536.0, p, 0.5 / 65536 + 1e-9);
        double dropped = 0;
        for (uint32_t row = 0; row < kRows; ++row)
            for (uint32_t column = 0; column < kColumns; ++column)
                dropped += dropout_keeps(key, threshold, 3, row, column) ? 0 : 1;
        const double deviation = std::sqrt(p * (1 - p) / kCount);
        EXPECT_NEAR(dropped / kCount, p, 5 * deviation + 1.0 / 65536);
    }
}

TEST(Philox, ThresholdAtTheEnds) {
    EXPECT_EQ(dropout_threshold(0.0f), 0u);  // nothing is below it: everything is kept
    EXPECT_EQ(dropout_threshold(0.5f), 32768u);
    EXPECT_EQ(dropout_threshold(std::nextafter(1.0f, 0.0f)), 65536u);
}

// Changing any coordinate, also in its high half, changes about half of the decisions at p = 1/2.
TEST(Philox, EveryCoordinateCounts) {
    const uint32_t threshold = dropout_threshold(0.5f);
    const auto differences = [&](PhiloxKey a, PhiloxKey b, uint32_t batch_head, uint32_t row_shift) {
        int count = 0;
        for (uint32_t row = 0; row < 64; ++row)
            for (uint32_t column = 0; column < 64; ++column)
                count += dropout_keeps(a, threshold, 5, row, column) !=
                         dropout_keeps(b, threshold, batch_head, row + row_shift, column);
        return count;
    };
    constexpr uint64_t kHigh = uint64_t{1} << 40;
    const PhiloxKey base = philox_key(9, 4);
    EXPECT_EQ(differences(base, base, 5, 0), 0);
    const int changed[] = {
        differences(base, philox_key(10, 4), 5, 0),
        differences(base, philox_key(9 + kHigh, 4), 5, 0),
        differences(base, philox_key(9, 5), 5, 0),
        differences(base, philox_key(9, 4 + kHigh), 5, 0),
        differences(base, base, 6, 0),
        differences(base, base, 5, 1),
    };
    for (const int count : changed) {
        EXPECT_GT(count, 1800);  // of 4096: 2048 +- 32, seven deviations and more
        EXPECT_LT(count, 2300);
    }
}

}  // namespace
}  // namespace tilewise
