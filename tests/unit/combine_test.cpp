// Merging partial attention: split = whole, and parts that saw nothing leave no trace whatever their output memory holds.
#include <cmath>

#include "kernel_call.hpp"

namespace tilewise::test {
namespace {

constexpr DType kF64 = DType::kF64;

TEST(Combine, WeighsPartsByTheirLse) {
    KernelCall call(Op::kCombine);
    call.set(Arg::kPartialO, DType::kF32, {2, 1, 1, 1, 2}, {4, 0, 8, 1})
        .set(Arg::kPartialLse, DType::kF32, {2, 1, 1, 1}, {0, 0});
    call.set(Arg::kO, DType::kF32, {1, 1, 1, 2}).set(Arg::kLse, DType::kF32, {1, 1, 1});
    call.run("cpu_combine");
    expect_near(call.values(Arg::kO), {6, 0.5}, 1e-6);
    expect_near(call.values(Arg::kLse), {std::log(2.0)}, 1e-6);
}

TEST(Combine, EmptyPartsMayHoldAnything) {
    KernelCall call(Op::kCombine);
    call.set(Arg::kPartialO, DType::kF32, {3, 2, 1, 1}, {kNaN, kNaN, 5, kNaN, kInf, kNaN});
    call.set(Arg::kPartialLse, DType::kF32, {3, 1, 2}, {-kInf, -kInf, -3, -kInf, -kInf, -kInf});
    call.set(Arg::kO, DType::kF16, {2, 1, 1}).set(Arg::kLse, DType::kF32, {1, 2});
    call.run("cpu_combine");
    expect_near(call.values(Arg::kO), {5, 0}, 0);
    expect_near(call.values(Arg::kLse), {-3, -kInf}, 0);
}

TEST(Combine, NoPartsAtAll) {
    KernelCall call(Op::kCombine);
    call.set(Arg::kPartialO, DType::kF32, {0, 1, 2, 1, 3}).set(Arg::kPartialLse, DType::kF32, {0, 1, 1, 2});
    call.set(Arg::kO, DType::kF32, {1, 2, 1, 3}).set(Arg::kLse, DType::kF32, {1, 1, 2});
    call.run("cpu_combine");
    expect_near(call.values(Arg::kO), Values(6, 0.0), 0);
    expect_near(call.values(Arg::kLse), {-kInf, -kInf}, 0);
}

TEST(Combine, ExtremeScoresDoNotOverflow) {
    KernelCall call(Op::kCombine);
    call.set(Arg::kPartialO, DType::kF32, {2, 1, 1, 1, 1}, {1, 3})
        .set(Arg::kPartialLse, DType::kF32, {2, 1, 1, 1}, {-1e5, 1e5});
    call.set(Arg::kO, DType::kF32, {1, 1, 1, 1}).set(Arg::kLse, DType::kF32, {1, 1, 1});
    call.run("cpu_combine");
    expect_near(call.values(Arg::kO), {3}, 0);
    expect_near(call.values(Arg::kLse), {1e5}, 0);
}

TEST(Combine, NaNStaysVisible) {
    KernelCall call(Op::kCombine);
    call.set(Arg::kPartialO, DType::kF32, {2, 1, 1, 1, 1}, {1, kNaN})
        .set(Arg::kPartialLse, DType::kF32, {2, 1, 1, 1}, {0, kNaN});
    call.set(Arg::kO, DType::kF32, {1, 1, 1, 1}).set(Arg::kLse, DType::kF32, {1, 1, 1});
    call.run("cpu_combine");
    expect_near(call.values(Arg::kO), {kNaN}, 0);
    expect_near(call.values(Arg::kLse), {kNaN}, 0);
}

// Keys 0..4, 5..5 (behind the causal mask of the first rows) and 6..8 apart, merged, against all nine at once.
TEST(Combine, SplitsEqualTheWhole) {
    const int64_t batch = 2, rows = 4, keys = 9, heads = 2, d = 3, dv = 5;
    KernelCall whole(Op::kForward);
    whole.set(Arg::kQ, kF64, {batch, rows, heads, d}, random_values(static_cast<size_t>(batch * rows * heads * d), 1));
    whole.set(Arg::kK, kF64, {batch, keys, heads, d}, random_values(static_cast<size_t>(batch * keys * heads * d), 2));
    whole.set(Arg::kV, kF64, {batch, keys, heads, dv},
              random_values(static_cast<size_t>(batch * keys * heads * dv), 3));
    whole.set(Arg::kO, kF64, {batch, rows, heads, dv}).set(Arg::kLse, kF64, {batch, heads, rows});
    whole.problem.mask.window_right = 0;
    whole.run("cpu_reference_forward");
    Values partial_o, partial_lse;
    for (const auto& [begin, end] : {std::pair{0, 5}, {5, 6}, {6, 9}}) {
        KernelCall part = whole;
        part.set_ints(Arg::kKeyBegin, {batch, rows}, std::vector<int>(static_cast<size_t>(batch * rows), begin));
        part.set_ints(Arg::kKeyEnd, {batch, rows}, std::vector<int>(static_cast<size_t>(batch * rows), end));
        part.run("cpu_reference_forward");
        for (const double x : part.values(Arg::kO)) partial_o.push_back(x);
        for (const double x : part.values(Arg::kLse)) partial_lse.push_back(x);
    }
    KernelCall merge(Op::kCombine);
    merge.set(Arg::kPartialO, kF64, {3, batch, rows, heads, dv}, partial_o);
    merge.set(Arg::kPartialLse, kF64, {3, batch, heads, rows}, partial_lse);
    merge.set(Arg::kO, kF64, {batch, rows, heads, dv}).set(Arg::kLse, kF64, {batch, heads, rows});
    merge.run("cpu_combine");
    expect_near(merge.values(Arg::kO), whole.values(Arg::kO), 1e-12, "o");
    expect_near(merge.values(Arg::kLse), whole.values(Arg::kLse), 1e-12, "lse");
}

}  // namespace
}  // namespace tilewise::test
