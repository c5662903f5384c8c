// The judge judged: element conversions, and that each kind of fault a kernel can have is found when it is planted in an outcome that was right.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "conformance/compare.hpp"
#include "conformance/dropout.hpp"
#include "conformance/element.hpp"
#include "conformance/storage.hpp"

namespace tilewise::conformance {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Element, RoundsToNearestEven) {
    EXPECT_EQ(rounded(DType::kBF16, 1 + 0x1p-8), 1.0);
    EXPECT_EQ(rounded(DType::kBF16, 1 + 3 * 0x1p-8), 1 + 0x1p-6);
    EXPECT_EQ(rounded(DType::kBF16, 1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
    EXPECT_EQ(rounded(DType::kF16, 65519.99), 65504.0);
    EXPECT_EQ(rounded(DType::kF16, -65520.0), -kInfinity);
    EXPECT_EQ(rounded(DType::kF16, 0x1p-24), 0x1p-24);
    EXPECT_EQ(rounded(DType::kF16, 0x1p-25), 0.0);
    EXPECT_EQ(rounded(DType::kF16, 1.5 * 0x1p-24), 0x1p-23);
    EXPECT_EQ(rounded(DType::kF32, 1 + 0x1p-24), 1.0);
    EXPECT_EQ(rounded(DType::kF32, 3.5e38), kInfinity);
    EXPECT_TRUE(std::isnan(rounded(DType::kF16, kNaN)));
}

TEST(Element, EveryPatternOf16BitsSurvivesMemory) {
    for (const DType dtype : {DType::kF16, DType::kBF16})
        for (uint32_t bits = 0; bits < 0x10000; ++bits) {
            const auto pattern = static_cast<uint16_t>(bits);
            const double value = load(dtype, &pattern);
            uint16_t back = 0;
            store(dtype, &back, value);
            if (std::isnan(value))
                EXPECT_TRUE(std::isnan(load(dtype, &back)));
            else
                ASSERT_EQ(back, pattern) << name_of(dtype) << " " << value;
            EXPECT_TRUE(std::isnan(value) || rounded(dtype, value) == value);
        }
}

TEST(Dropout, DropsItsShare) {
    for (const float p : {0.1f, 0.5f, 0.9f}) {
        int kept = 0;
        for (uint64_t row = 0; row < 100; ++row)
            for (uint64_t key = 0; key < 400; ++key) kept += keeps({3, 4, p}, 7, row, key) ? 1 : 0;
        EXPECT_NEAR(kept / 40000.0, 1 - static_cast<double>(p), 0.01);
    }
}

TEST(Storage, FindsWritesOutsideOfTheElements) {
    TensorData tensor{DType::kF32, {2, 3, 2, 4}, std::vector<double>(48, 1.0), Access::kIn, {}, Layout::kPaddedRows, 0};
    const Device cpu("cpu");
    Storage input(cpu, tensor, DType::kF32);
    const Tensor view = input.view();
    EXPECT_EQ(input.find_damage(), "");
    static_cast<float*>(view.data())[0] = 2;
    input.fetch();
    EXPECT_NE(input.find_damage(), "") << "a changed input";
    tensor.access = Access::kOut;
    Storage output(cpu, tensor, DType::kF32);
    auto* data = static_cast<float*>(output.view().data());
    EXPECT_TRUE(output.is_unwritten(5));
    data[0] = 2;
    output.fetch();
    EXPECT_EQ(output.find_damage(), "");
    EXPECT_FALSE(output.is_unwritten(0));
    data[8] = 3;  // in the gap behind the heads of a row
    output.fetch();
    EXPECT_NE(output.find_damage(), "");
}

// A right outcome of a small problem, to plant faults in.
class Planted : public testing::Test {
protected:
    void SetUp() override {
        spec_.sizes = {2, 9, 13, 2, 1, 8, 6};
        spec_.lengths.used_q = {9, 7};
        spec_.mask.causal = true;
        instance_ = make_instance(spec_, DType::kF32);
        expectation_ = evaluate(instance_);
        outcome_ = run_kernel(device_, instance_);
        ASSERT_TRUE(compare(instance_, expectation_, outcome_, nullptr).ok());
    }
    double& o(size_t index) { return outcome_.outputs.at(Slot::kO).values[index]; }
    std::string fault() { return compare(instance_, expectation_, outcome_, nullptr).fault; }

    Device device_{"cpu"};
    ProblemSpec spec_;
    Instance instance_;
    Expectation expectation_;
    Outcome outcome_;
};

TEST_F(Planted, OneElementOffByATenThousandth) {
    o(77) *= 1.0001;
    EXPECT_NE(fault().find("o[0, 6, 0, 5]"), std::string::npos) << fault();
}
TEST_F(Planted, OneNaN) {
    o(3) = kNaN;
    EXPECT_NE(fault(), "");
}
TEST_F(Planted, FiniteInsteadOfMinusInfinity) {
    spec_.sizes.seqlen_k = 0;
    instance_ = make_instance(spec_, DType::kF32);
    expectation_ = evaluate(instance_);
    outcome_ = run_kernel(device_, instance_);
    ASSERT_EQ(fault(), "");
    outcome_.outputs.at(Slot::kLse).values[0] = -1e30;
    EXPECT_NE(fault(), "");
}
TEST_F(Planted, RowNotWritten) {
    outcome_.outputs.at(Slot::kO).unwritten[0] = 1;
    EXPECT_NE(fault().find("was not written"), std::string::npos) << fault();
}
TEST_F(Planted, RowOfNoSequenceWritten) {
    auto& unwritten = outcome_.outputs.at(Slot::kO).unwritten;
    EXPECT_EQ(unwritten.back(), 1);
    unwritten.back() = 0;
    EXPECT_NE(fault().find("belongs to no sequence"), std::string::npos) << fault();
}
TEST_F(Planted, MemoryDamaged) {
    outcome_.damage = "q: byte 3";
    EXPECT_EQ(fault(), "q: byte 3");
}
// Problems that differ in one word of the contract must not pass for each other.
TEST_F(Planted, ResultsOfAnotherMask) {
    for (int change = 0; change < 4; ++change) {
        ProblemSpec other = spec_;
        if (change == 0) other.mask.top_left = true;
        if (change == 1) other.mask.left = 11;
        if (change == 2) other.score.scale = 0.354f;  // 8^-0.5 is 0.35355
        if (change == 3) other.score.softcap = 50;
        Instance changed = make_instance(other, DType::kF32);
        outcome_ = run_kernel(device_, changed);
        EXPECT_NE(fault(), "") << change;
    }
}

}  // namespace
}  // namespace tilewise::conformance
