// The inner loops in every instruction set that this processor runs: blocks worked out by hand, every half-precision
// number, and panel products against sums in double.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "kernels.hpp"
#include "narrow.hpp"
#include "synthetic_gguf.hpp"

namespace tilewise::generate {
namespace {

class EachKernelSet : public testing::TestWithParam<const Kernels*> {
protected:
    std::vector<float> dequantize(TensorType type, const Bytes& row, std::int64_t cols) const {
        std::vector<float> out(static_cast<std::size_t>(cols), std::nanf(""));
        GetParam()->dequantize(type, row.data(), cols, out.data());
        return out;
    }
};

INSTANTIATE_TEST_SUITE_P(Available, EachKernelSet, testing::ValuesIn(available_kernels()),
                         [](const auto& set) { return std::string(set.param->name); });

TEST_P(EachKernelSet, Q4_1IsScaleTimesNibblePlusMinimum) {
    Bytes row;
    for (const auto scale : {std::uint16_t{0x3800}, std::uint16_t{0x4000}}) {  // 0.5, 2
        append(row, scale);
        append(row, std::uint16_t{0xbc00});  // -1
        for (unsigned j = 0; j < 16; ++j) {
            row.push_back(static_cast<std::byte>(j | (15 - j) << 4));
        }
    }
    const std::vector<float> out = dequantize(TensorType::kQ41, row, 64);
    for (std::size_t j = 0; j < 16; ++j) {
        const auto low = static_cast<float>(j);
        EXPECT_EQ(out[j], 0.5f * low - 1) << j;
        EXPECT_EQ(out[16 + j], 0.5f * (15 - low) - 1) << j;
        EXPECT_EQ(out[32 + j], 2 * low - 1) << j;
        EXPECT_EQ(out[48 + j], 2 * (15 - low) - 1) << j;
    }
}

TEST_P(EachKernelSet, Q8_0IsScaleTimesSignedByte) {
    Bytes row;
    append(row, std::uint16_t{0x3400});  // 0.25
    for (int j = 0; j < 32; ++j) {
        row.push_back(static_cast<std::byte>(static_cast<std::int8_t>(j == 0 ? -128 : j == 1 ? 127 : 3 * j - 60)));
    }
    const std::vector<float> out = dequantize(TensorType::kQ80, row, 32);
    EXPECT_EQ(out[0], -32.0f);
    EXPECT_EQ(out[1], 31.75f);
    for (std::size_t j = 2; j < 32; ++j) {
        EXPECT_EQ(out[j], 0.25f * (3 * static_cast<float>(j) - 60)) << j;
    }
}

TEST_P(EachKernelSet, F32IsCopied) {
    Bytes row;
    for (const float value : {1.5f, -0.0f, 3e38f}) {
        append(row, value);
    }
    const std::vector<float> out = dequantize(TensorType::kF32, row, 3);
    EXPECT_EQ(out, (std::vector<float>{1.5f, -0.0f, 3e38f}));
    EXPECT_TRUE(std::signbit(out[1]));
}

// sign, exponent and fraction taken apart, as the format is defined.
float half_by_definition(std::uint32_t half) {
    const int exponent = static_cast<int>(half >> 10 & 31);
    const auto fraction = static_cast<float>(half & 1023) / 1024;
    const float sign = half & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 31) {
        return fraction == 0 ? sign * INFINITY : std::nanf("");
    }
    return sign * (exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15));
}

TEST_P(EachKernelSet, F16IsExactForEveryNumber) {
    Bytes row;
    for (std::uint32_t half = 0; half < 65536; ++half) {
        append(row, static_cast<std::uint16_t>(half));
    }
    const std::vector<float> out = dequantize(TensorType::kF16, row, 65536);
    for (std::uint32_t half = 0; half < 65536; ++half) {
        const float expected = half_by_definition(half);
        ASSERT_EQ(std::isnan(out[half]), std::isnan(expected)) << half;
        if (!std::isnan(expected)) {
            ASSERT_EQ(std::bit_cast<std::uint32_t>(out[half]), std::bit_cast<std::uint32_t>(expected)) << half;
        }
    }
}

TEST_P(EachKernelSet, MultipliesPanelsOfEverySize) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (const std::int64_t cols : {1, 15, 16, 37, 64}) {
        Bytes weight;
        std::vector<float> w(static_cast<std::size_t>(kPanelRows * cols));
        for (float& value : w) {
            value = uniform(random);
            append(weight, value);
        }
        for (std::int64_t tokens = 1; tokens <= 9; ++tokens) {
            std::vector<float> x(static_cast<std::size_t>(tokens * cols));
            for (float& value : x) {
                value = uniform(random);
            }
            for (std::int64_t rows = 1; rows <= kPanelRows; ++rows) {
                constexpr std::int64_t kStride = kPanelRows + 1;
                std::vector<float> out(static_cast<std::size_t>(tokens * kStride), -7.0f);
                std::vector<float> panel(w.size());
                GetParam()->multiply({TensorType::kF32, weight.data(), cols * 4, rows, cols, x.data(), tokens,
                                      out.data(), kStride, panel.data()});
                for (std::int64_t i = 0; i < tokens * kStride; ++i) {
                    const std::int64_t token = i / kStride, row = i % kStride;
                    double sum = 0;
                    for (std::int64_t c = 0; c < cols; ++c) {
                        sum += row < rows ? static_cast<double>(w[static_cast<std::size_t>(row * cols + c)]) *
                                                static_cast<double>(x[static_cast<std::size_t>(token * cols + c)])
                                          : 0.0;
                    }
                    const double expected = row < rows ? sum : -7.0;
                    EXPECT_NEAR(static_cast<double>(out[static_cast<std::size_t>(i)]), expected, 1e-5)
                        << cols << " cols, " << rows << " rows, token " << token << ", row " << row;
                }
            }
        }
    }
}

TEST(Narrow, RoundsToTheNearestHalfAndBack) {
    for (std::uint32_t half = 0; half < 0x7c00; ++half) {
        const auto code = static_cast<std::uint16_t>(half);
        const float value = half_by_definition(half);
        const float above = half_by_definition(half + 1);
        const float middle = std::isinf(above) ? 65520.0f : (value + above) / 2;
        const std::uint16_t even = static_cast<std::uint16_t>(half + (half & 1));
        const float inputs[] = {value, std::nextafter(middle, 0.0f), middle, -value};
        std::uint16_t outputs[4];
        to_narrow(Narrow::kF16, inputs, outputs);
        ASSERT_EQ(outputs[0], code);
        ASSERT_EQ(outputs[1], code);
        ASSERT_EQ(outputs[2], even);
        ASSERT_EQ(outputs[3], code | 0x8000);
    }
}

TEST(Narrow, RoundsToBfloat16AndBack) {
    const float inputs[] = {1.0f, 1.0f + 0x1p-8f, 1.0f + 0x3p-8f, -3.0f, INFINITY, 3.4e38f, 1e10f};
    std::uint16_t codes[7];
    float back[7];
    to_narrow(Narrow::kBF16, inputs, codes);
    from_narrow(Narrow::kBF16, codes, back);
    EXPECT_EQ(back[0], 1.0f);
    EXPECT_EQ(back[1], 1.0f) << "a tie goes to even";
    EXPECT_EQ(back[2], 1.0f + 0x1p-6f) << "a tie goes to even";
    EXPECT_EQ(back[3], -3.0f);
    EXPECT_EQ(back[4], INFINITY);
    EXPECT_EQ(back[5], INFINITY);
    EXPECT_NEAR(back[6], 1e10f, 1e10f / 256);
}

TEST(Narrow, KeepsNanAndOverflowsToInfinity) {
    const float inputs[] = {std::nanf(""), 65536.0f, -1e30f};
    std::uint16_t half[3], bf16[3];
    to_narrow(Narrow::kF16, inputs, half);
    to_narrow(Narrow::kBF16, inputs, bf16);
    EXPECT_TRUE(std::isnan(half_by_definition(half[0])));
    EXPECT_EQ(half[1], 0x7c00);
    EXPECT_EQ(half[2], 0xfc00);
    EXPECT_GT(bf16[0] & 0x7fff, 0x7f80);
}

}  // namespace
}  // namespace tilewise::generate
