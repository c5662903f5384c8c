// Tensor descriptions: extents, contiguous strides, names and text.
#include "core/tensor.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

namespace tilewise {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

TEST(Tensor, ContiguousHasRowMajorStrides) {
    const TensorDesc t = contiguous(DType::kF32, {2, 3, 5});
    EXPECT_EQ(t.rank, 3);
    EXPECT_EQ(t.step(0), 15);
    EXPECT_EQ(t.step(1), 5);
    EXPECT_EQ(t.step(2), 1);
    EXPECT_EQ(t.num_elements(), 30);
    EXPECT_EQ(t.last_offset(), 29);
}

TEST(Tensor, ScalarsAndEmptyTensors) {
    EXPECT_EQ(contiguous(DType::kF32, {}).num_elements(), 1);
    EXPECT_EQ(contiguous(DType::kF32, {}).last_offset(), 0);
    EXPECT_EQ(contiguous(DType::kF32, {4, 0, 8}).num_elements(), 0);
    EXPECT_EQ(contiguous(DType::kF32, {4, 0, 8}).last_offset(), 0);
    EXPECT_FALSE(TensorDesc{}.given());
}

TEST(Tensor, LastOffsetFollowsStridesAndIgnoresAxesOfSizeOne) {
    TensorDesc t = contiguous(DType::kF16, {1, 4, 3});
    t.stride = {999, 100, 0};
    EXPECT_EQ(t.last_offset(), 300);
}

TEST(Tensor, ExtentsSaturate) {
    TensorDesc t = contiguous(DType::kF16, {int64_t{1} << 40, int64_t{1} << 40});
    EXPECT_EQ(t.num_elements(), kLargest);
    t = contiguous(DType::kF16, {3, 3});
    t.stride = {kLargest, kLargest};
    EXPECT_EQ(t.last_offset(), kLargest);
}

TEST(Tensor, TextShowsWhatIsUnusualOnly) {
    TensorDesc t = contiguous(DType::kBF16, {2, 128, 8, 64});
    EXPECT_EQ(to_string(t), "bf16 (2, 128, 8, 64)");
    t.stride = {65536, 64, 8192, 1};
    t.alignment = 2;
    EXPECT_EQ(to_string(t), "bf16 (2, 128, 8, 64) strides (65536, 64, 8192, 1) 2-byte aligned");
    t = contiguous(DType::kF32, {1, 6});
    t.stride = {0, 1};  // the stride of an axis of size 1 means nothing
    EXPECT_EQ(to_string(t), "f32 (1, 6)");
    EXPECT_EQ(to_string(TensorDesc{}), "none");
}

TEST(Tensor, EveryArgumentHasItsOwnName) {
    std::set<std::string> names;
    for (size_t i = 0; i < kNumArgs; ++i) names.insert(name_of(static_cast<Arg>(i)));
    EXPECT_EQ(names.size(), kNumArgs);
    EXPECT_STREQ(name_of(Arg::kQ), "q");
    EXPECT_STREQ(name_of(Arg::kGradSink), "grad_sink");
    EXPECT_STREQ(name_of(Arg::kCuSeqlensKNew), "cu_seqlens_k_new");
    EXPECT_STREQ(name_of(Arg::kTotalSeqlens), "total_seqlens");
}

TEST(Tensor, EveryTypeHasItsName) {
    EXPECT_STREQ(name_of(DType::kF32), "f32");
    EXPECT_STREQ(name_of(DType::kF16), "f16");
    EXPECT_STREQ(name_of(DType::kBF16), "bf16");
    EXPECT_STREQ(name_of(DType::kF64), "f64");
    EXPECT_STREQ(name_of(DType::kI32), "i32");
    EXPECT_STREQ(name_of(DType::kI64), "i64");
    EXPECT_STREQ(name_of(DType::kBool), "bool");
    EXPECT_STREQ(name_of(DType::kBits), "bits");
    EXPECT_STREQ(name_of(DType::kNone), "none");
}

}  // namespace
}  // namespace tilewise
