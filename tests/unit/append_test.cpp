// Appending to a cache: where rows go (dense, paged, ragged, any cache row), what stays untouched, and rotary by hand.
#include <cmath>

#include "kernel_call.hpp"

namespace tilewise::test {
namespace {

constexpr DType kF32 = DType::kF32;

// Cache rows hold NaN; a new key row of sequence b holds 100 b + t (+ 0.5 for values), one head.
KernelCall dense_cache(int64_t cache_rows, int64_t cache_len, int64_t batch, int64_t n,
                       const std::vector<int>& lengths) {
    KernelCall call(Op::kAppend);
    Values keys, values;
    for (int64_t b = 0; b < batch; ++b)
        for (int64_t t = 0; t < n; ++t) {
            keys.push_back(static_cast<double>(100 * b + t));
            values.push_back(static_cast<double>(100 * b + t) + 0.5);
        }
    call.set(Arg::kK, kF32, {cache_rows, cache_len, 1, 1}).set(Arg::kV, kF32, {cache_rows, cache_len, 1, 1});
    call.set(Arg::kKNew, kF32, {batch, n, 1, 1}, keys).set(Arg::kVNew, kF32, {batch, n, 1, 1}, values);
    call.set_ints(Arg::kCacheSeqlens, lengths);
    return call;
}

TEST(Append, WritesBehindEachLengthOnly) {
    KernelCall call = dense_cache(2, 4, 2, 2, {0, 2});
    call.run("cpu_append");
    expect_near(call.values(Arg::kK), {0, 1, kNaN, kNaN, kNaN, kNaN, 100, 101}, 0);
    expect_near(call.values(Arg::kV), {0.5, 1.5, kNaN, kNaN, kNaN, kNaN, 100.5, 101.5}, 0);
    EXPECT_EQ(call.values(Arg::kCacheSeqlens), (Values{0, 2}));
}

TEST(Append, CacheBatchIdxPicksTheRow) {  // R008: the other rows of the cache keep their bytes
    KernelCall call = dense_cache(4, 2, 2, 1, {1, 0});
    call.set_ints(Arg::kCacheBatchIdx, {3, 1});
    call.run("cpu_append");
    expect_near(call.values(Arg::kK), {kNaN, kNaN, 100, kNaN, kNaN, kNaN, kNaN, 0}, 0);
}

TEST(Append, PagedCacheAndItsTotals) {
    KernelCall call = dense_cache(4, 2, 2, 3, {1, 0});  // four pages of two rows
    call.set_ints(Arg::kPageTable, {2, 2}, {2, 0, 3, 1}).set_ints(Arg::kTotalSeqlens, {0, 0});
    call.run("cpu_append");
    expect_near(call.values(Arg::kK), {1, 2, 102, kNaN, kNaN, 0, 100, 101}, 0);
    EXPECT_EQ(call.values(Arg::kTotalSeqlens), (Values{4, 3}));
}

TEST(Append, RaggedNewKeys) {
    KernelCall call = dense_cache(3, 3, 1, 5, {1, 2, 0});
    call.set(Arg::kKNew, kF32, {5, 1, 1}, {1, 2, 3, 4, 99}).set(Arg::kVNew, kF32, {5, 1, 1}, {1, 2, 3, 4, 99});
    call.set_ints(Arg::kCuSeqlensKNew, {0, 2, 2, 4}).set_ints(Arg::kTotalSeqlens, {0, 0, 0});
    call.run("cpu_append");
    expect_near(call.values(Arg::kK), {kNaN, 1, 2, kNaN, kNaN, kNaN, 3, 4, kNaN}, 0);
    EXPECT_EQ(call.values(Arg::kTotalSeqlens), (Values{3, 2, 2}));
}

// Angles of position p: pair t turns by p * (t + 1) / 10.
void set_rotary(KernelCall& call, int64_t positions, int64_t pairs, DType dtype) {
    Values cos, sin;
    for (int64_t p = 0; p < positions; ++p)
        for (int64_t t = 0; t < pairs; ++t) {
            cos.push_back(std::cos(static_cast<double>(p * (t + 1)) / 10));
            sin.push_back(std::sin(static_cast<double>(p * (t + 1)) / 10));
        }
    call.set(Arg::kRotaryCos, dtype, {positions, pairs}, cos).set(Arg::kRotarySin, dtype, {positions, pairs}, sin);
}

Values rotated(const Values& x, int position, bool interleaved) {
    Values y = x;
    for (size_t t = 0; t < 2; ++t) {
        const size_t a = interleaved ? 2 * t : t, b = interleaved ? 2 * t + 1 : t + 2;
        const double angle = position * (static_cast<double>(t) + 1) / 10;
        y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
        y[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
    }
    return y;
}

// One sequence with 3 cached keys, 2 new ones and 2 queries; head_dim 5, of which 4 rotate.
KernelCall rotary_call(DType dtype, bool interleaved) {
    KernelCall call(Op::kAppend);
    call.set(Arg::kK, dtype, {1, 6, 1, 5}).set(Arg::kV, dtype, {1, 6, 1, 1});
    call.set(Arg::kKNew, dtype, {1, 2, 1, 5}, random_values(10, 4)).set(Arg::kVNew, dtype, {1, 2, 1, 1}, {1, 2});
    call.set(Arg::kQ, dtype, {1, 2, 1, 5}, random_values(10, 5)).set(Arg::kQRotated, dtype, {1, 2, 1, 5});
    call.set_ints(Arg::kCacheSeqlens, {3});
    call.problem.exec.rotary_interleaved = interleaved;
    set_rotary(call, 16, 2, dtype);
    return call;
}

Values row(const KernelCall& call, Arg arg, int64_t index) {
    Values values;
    for (int64_t i = 0; i < 5; ++i) values.push_back(call.at(arg, index * 5 + i));
    return values;
}

TEST(Append, RotatesKeysAndQueriesAtTheirPositions) {
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
        for (const bool interleaved : {false, true})
            for (const bool causal : {false, true}) {
                KernelCall call = rotary_call(dtype, interleaved);
                if (causal) call.problem.mask.window_right = 0;
                call.run("cpu_append");
                const double tolerance = dtype == DType::kF64 ? 1e-15 : dtype == kF32 ? 1e-6 : 0.03;
                for (int t = 0; t < 2; ++t) {
                    expect_near(row(call, Arg::kK, 3 + t), rotated(row(call, Arg::kKNew, t), 3 + t, interleaved),
                                tolerance);
                    expect_near(row(call, Arg::kQRotated, t),
                                rotated(row(call, Arg::kQ, t), causal ? 3 + t : 3, interleaved), tolerance);
                }
                EXPECT_TRUE(std::isnan(call.at(Arg::kK, 0)) && std::isnan(call.at(Arg::kK, 25)));
            }
}

TEST(Append, RotarySeqlensReplaceTheCachePosition) {
    KernelCall call = rotary_call(kF32, false);
    call.set_ints(Arg::kRotarySeqlens, {9});
    call.problem.mask.window_left = 2;
    call.run("cpu_append");
    expect_near(row(call, Arg::kK, 4), rotated(row(call, Arg::kKNew, 1), 10, false), 1e-6);
    expect_near(row(call, Arg::kQRotated, 1), rotated(row(call, Arg::kQ, 1), 10, false), 1e-6);
}

TEST(Append, RotaryMathIsFp32) {
    // In bf16 arithmetic x cos and x sin would round before they are added.
    KernelCall call = rotary_call(DType::kBF16, false);
    call.run("cpu_append");
    const Values exact = rotated(row(call, Arg::kKNew, 0), 3, false);
    const float x0 = static_cast<float>(call.at(Arg::kKNew, 0)), x1 = static_cast<float>(call.at(Arg::kKNew, 2));
    const float cos = static_cast<float>(call.at(Arg::kRotaryCos, 6)),
                sin = static_cast<float>(call.at(Arg::kRotarySin, 6));
    EXPECT_EQ(call.at(Arg::kK, 15), static_cast<double>(to_float(to_bf16(x0 * cos - x1 * sin))));
    EXPECT_NEAR(call.at(Arg::kK, 15), exact[0], 0.03);
}

TEST(Append, StridedTensors) {
    KernelCall call = rotary_call(kF32, true);
    KernelCall plain = call;
    plain.run("cpu_append");
    // The same new keys, stored head_dim first.
    Values transposed(10);
    for (size_t t = 0; t < 2; ++t)
        for (size_t i = 0; i < 5; ++i) transposed[i * 2 + t] = plain.at(Arg::kKNew, static_cast<int64_t>(t * 5 + i));
    call.set(Arg::kKNew, kF32, {1, 2, 1, 5}, transposed);
    call.problem[Arg::kKNew].stride = {10, 1, 1, 2};
    call.run("cpu_append");
    expect_near(call.values(Arg::kK), plain.values(Arg::kK), 0);
}

}  // namespace
}  // namespace tilewise::test
