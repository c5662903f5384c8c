// Conversions of the 16-bit types: every pattern, every tie between neighbours, the ends of the range.
#include "math/types.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace tilewise {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Sign, exponent and fraction read as IEEE 754 words them.
double decode(uint32_t bits, int exponent_bits, int fraction_bits) {
    const int exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    const int fraction = static_cast<int>(bits) & ((1 << fraction_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double sign = (bits >> (exponent_bits + fraction_bits)) & 1 ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1)
        return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                             : sign * std::numeric_limits<double>::infinity();
    const double hidden = exponent == 0 ? 0.0 : 1.0;
    return sign * std::ldexp(hidden + std::ldexp(fraction, -fraction_bits), std::max(exponent, 1) - bias);
}

TEST(Types, EveryHalfConvertsAndReturns) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
        const float x = to_float(F16{static_cast<uint16_t>(bits)});
        const double expected = decode(bits, 5, 10);
        if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(x)) << bits;
            ASSERT_TRUE(std::isnan(to_float(to_f16(x)))) << bits;
            continue;
        }
        ASSERT_EQ(x, expected) << bits;
        ASSERT_EQ(to_f16(x).bits, bits);
    }
}

TEST(Types, EveryBrainFloatConvertsAndReturns) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
        const float x = to_float(BF16{static_cast<uint16_t>(bits)});
        const double expected = decode(bits, 8, 7);
        if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(x)) << bits;
            ASSERT_TRUE(std::isnan(to_float(to_bf16(x)))) << bits;
            continue;
        }
        ASSERT_EQ(x, expected) << bits;
        ASSERT_EQ(to_bf16(x).bits, bits);
    }
}

// Between each pattern and the next: the middle goes to the even one, a float to either side of it to the nearer one.
template <class Store> void check_ties(uint32_t last_finite, float (*load)(uint32_t), Store store) {
    for (uint32_t bits = 0; bits < last_finite; ++bits) {
        const float low = load(bits), high = load(bits + 1);
        const float middle = low + (high - low) / 2;
        ASSERT_EQ(store(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
        ASSERT_EQ(store(std::nextafter(middle, -kInfinity)), bits);
        ASSERT_EQ(store(std::nextafter(middle, kInfinity)), bits + 1);
        ASSERT_EQ(store(-middle), (bits % 2 == 0 ? bits : bits + 1) | 0x8000u);
    }
}

TEST(Types, HalfTiesGoToEven) {
    check_ties(
        0x7bff, [](uint32_t bits) { return to_float(F16{static_cast<uint16_t>(bits)}); },
        [](float x) { return uint32_t{to_f16(x).bits}; });
}

TEST(Types, BrainFloatTiesGoToEven) {
    check_ties(
        0x7f7f, [](uint32_t bits) { return to_float(BF16{static_cast<uint16_t>(bits)}); },
        [](float x) { return uint32_t{to_bf16(x).bits}; });
}

TEST(Types, EndsOfTheRange) {
    EXPECT_EQ(to_f16(65504.0f).bits, 0x7bff);
    EXPECT_EQ(to_f16(std::nextafter(65520.0f, 0.0f)).bits, 0x7bff);
    EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);  // the tie at the end goes to infinity, the even pattern
    EXPECT_EQ(to_f16(-1e30f).bits, 0xfc00);
    EXPECT_EQ(to_f16(std::numeric_limits<float>::denorm_min()).bits, 0);
    EXPECT_EQ(to_f16(std::ldexp(1.0f, -25)).bits, 0);  // half of the smallest: even is 0
    EXPECT_EQ(to_f16(std::nextafter(std::ldexp(1.0f, -25), 1.0f)).bits, 1);
    EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
    EXPECT_EQ(to_bf16(-kInfinity).bits, 0xff80);
    EXPECT_EQ(to_bf16(-0.0f).bits, 0x8000);
    EXPECT_EQ(to_f16(-0.0f).bits, 0x8000);
}

// A signalling NaN whose payload lies in the bits that are cut off must not become an infinity.
TEST(Types, NanStaysNan) {
    for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0x7fffffffu, 0xffffffffu}) {
        EXPECT_TRUE(std::isnan(to_float(to_f16(float_of(bits))))) << bits;
        EXPECT_TRUE(std::isnan(to_float(to_bf16(float_of(bits))))) << bits;
    }
}

TEST(Types, RandomFloatsGoToTheNearest) {
    std::mt19937 random(7);
    for (int n = 0; n < 200000; ++n) {
        const float x = float_of(static_cast<uint32_t>(random()));
        if (!std::isfinite(x)) continue;
        const BF16 rounded = to_bf16(x);
        const double error = std::abs(double{to_float(rounded)} - double{x});
        for (const int step : {-1, 1}) {
            const float neighbour = to_float(BF16{static_cast<uint16_t>(rounded.bits + step)});
            if (!std::isfinite(neighbour) || !std::isfinite(to_float(rounded))) continue;
            ASSERT_LE(error, std::abs(double{neighbour} - double{x})) << x;
        }
    }
}

TEST(Types, SizesAndIntegerHelpers) {
    EXPECT_EQ(size_of(DType::kF64), 8);
    EXPECT_EQ(size_of(DType::kI32), 4);
    EXPECT_EQ(size_of(DType::kBF16), 2);
    EXPECT_EQ(size_of(DType::kBits), 1);
    EXPECT_EQ(size_of(DType::kNone), 0);
    EXPECT_EQ(ceil_div(0, 64), 0);
    EXPECT_EQ(ceil_div(65, 64), 2);
    EXPECT_EQ(round_up(1, 64), 64);
    EXPECT_EQ(round_up(128, 64), 128);
    EXPECT_EQ(clamp_to(7, 0, 5), 5);
    EXPECT_EQ(clamp_to(-7, 0, 5), 0);
}

}  // namespace
}  // namespace tilewise
