// Appending on the GPU: the same bytes and rotations as on the CPU, and what happens to lengths and indices that only the device knows.
#include "cuda/shared/append.hpp"
#include "math/cache_fault.hpp"
#include "shared_device_call.hpp"

namespace tilewise::test {
namespace {

constexpr DType kF32 = DType::kF32;

const KernelRow& append_row() {
    static const KernelRow row = cuda::append_row();
    return row;
}

void set_tables(KernelCall& call, DType dtype, int64_t positions, int64_t pairs) {
    const auto count = static_cast<size_t>(positions * pairs);
    call.set(Arg::kRotaryCos, dtype, {positions, pairs}, random_values(count, 8));
    call.set(Arg::kRotarySin, dtype, {positions, pairs}, random_values(count, 9));
}

// Three sequences that get 5 rows each behind 7, 0 and 20 keys; caches of 5 rows of 40 keys, 3 heads, head_dim 70, head_dim_v 33.
KernelCall dense_call(DType dtype) {
    KernelCall call(Op::kAppend);
    call.set(Arg::kK, dtype, {5, 40, 3, 70}).set(Arg::kV, dtype, {5, 40, 3, 33});
    call.set(Arg::kKNew, dtype, {3, 5, 3, 70}, random_values(3150, 1));
    call.set(Arg::kVNew, dtype, {3, 5, 3, 33}, random_values(1485, 2));
    call.set_ints(Arg::kCacheSeqlens, {7, 0, 20}).set_ints(Arg::kCacheBatchIdx, {4, 0, 2});
    call.set_ints(Arg::kTotalSeqlens, {-1, -1, -1}).set_ints(Arg::kErrorFlag, {0});
    return call;
}

void add_queries(KernelCall& call, DType dtype) {
    call.set(Arg::kQ, dtype, {3, 4, 6, 70}, random_values(5040, 3)).set(Arg::kQRotated, dtype, {3, 4, 6, 70});
    set_tables(call, dtype, 40, 31);
}

void expect_same(KernelCall& call, double tolerance) {
    DeviceCall device(call);
    device.run(append_row());
    call.run("cpu_append");
    for (const Arg arg : {Arg::kK, Arg::kV, Arg::kQRotated, Arg::kTotalSeqlens, Arg::kErrorFlag})
        if (call.problem.has(arg)) expect_near(device.values(arg), call.values(arg), tolerance, name_of(arg));
}

class SharedAppend : public testing::TestWithParam<DType> {
protected:
    void SetUp() override { TILEWISE_NEEDS_GPU(); }
};
INSTANTIATE_TEST_SUITE_P(Dtypes, SharedAppend, testing::Values(kF32, DType::kF16, DType::kBF16));

TEST_P(SharedAppend, CopiesDenseRows) {
    KernelCall call = dense_call(GetParam());
    expect_same(call, 0);
}

TEST_P(SharedAppend, RotatesKeysAndQueries) {
    for (const bool interleaved : {false, true})
        for (const bool causal : {false, true}) {
            KernelCall call = dense_call(GetParam());
            add_queries(call, GetParam());
            call.problem.exec.rotary_interleaved = interleaved;
            if (causal) call.problem.mask.window_right = 0;
            expect_same(call, GetParam() == kF32 ? 1e-5 : 0.06);
        }
}

TEST_P(SharedAppend, PagesAndRaggedRows) {
    KernelCall call(Op::kAppend);
    const DType dtype = GetParam();
    call.set(Arg::kK, dtype, {30, 3, 2, 64}).set(Arg::kV, dtype, {30, 3, 2, 64});
    call.set(Arg::kKNew, dtype, {12, 2, 64}, random_values(1536, 1));
    call.set(Arg::kVNew, dtype, {12, 2, 64}, random_values(1536, 2));
    call.set_ints(Arg::kCuSeqlensKNew, {0, 4, 4, 5, 11});
    call.set_ints(Arg::kCacheSeqlens, {1, 5, 0, 11}).set_ints(Arg::kRotarySeqlens, {0, 9, 2, 3});
    Values ids(28);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<double>((i * 11 + 3) % 30);
    call.set(Arg::kPageTable, DType::kI32, {4, 7}, ids);
    call.set_ints(Arg::kTotalSeqlens, {-1, -1, -1, -1}).set_ints(Arg::kErrorFlag, {0});
    set_tables(call, kF32, 16, 32);
    expect_same(call, dtype == kF32 ? 1e-5 : 0.06);
}

// Runs a call with a fault; returns the flag. `written` rows of the cache may have changed, the rest still holds NaN.
int32_t run_faulty(const KernelCall& call, DeviceCall& device, size_t rows_written) {
    device.run(append_row());
    for (const Arg arg : {Arg::kK, Arg::kV}) {
        const Values values = device.values(arg);
        const auto written =
            static_cast<size_t>(std::count_if(values.begin(), values.end(), [](double x) { return !std::isnan(x); }));
        const TensorDesc& tensor = call.problem[arg];
        EXPECT_EQ(written, rows_written * static_cast<size_t>(tensor.dim(2) * tensor.dim(3))) << name_of(arg);
    }
    return static_cast<int32_t>(device.values(Arg::kErrorFlag)[0]);
}

TEST_P(SharedAppend, RowsThatDoNotFitAreNotWritten) {
    KernelCall call = dense_call(GetParam());
    call.set_ints(Arg::kCacheSeqlens, {38, -3, 2147483647});
    DeviceCall device(call);
    // Rows 38 and 39 of the first sequence and rows 0 and 1 of the second exist; of the third none.
    EXPECT_EQ(run_faulty(call, device, 4), kFaultLength);
    EXPECT_EQ(device.values(Arg::kTotalSeqlens), (Values{40, 2, 40}));
}

TEST_P(SharedAppend, CacheRowsThatDoNotExistAreNotWritten) {
    KernelCall call = dense_call(GetParam());
    call.set_ints(Arg::kCacheBatchIdx, {-1, 5, 2});
    DeviceCall device(call);
    EXPECT_EQ(run_faulty(call, device, 5), kFaultCacheRow);
    EXPECT_EQ(device.values(Arg::kTotalSeqlens), (Values{0, 0, 25})) << "attention must not follow a wrong row";
}

TEST_P(SharedAppend, PagesThatDoNotExistAreNotWritten) {
    KernelCall call = dense_call(GetParam());
    call.drop(Arg::kCacheBatchIdx);
    call.set(Arg::kK, GetParam(), {9, 8, 3, 70}).set(Arg::kV, GetParam(), {9, 8, 3, 33});
    // Pages of 8 rows: keys 7 .. 11, 0 .. 4 and 20 .. 24 of the sequences.
    call.set_ints(Arg::kPageTable, {3, 4}, {0, -1, 77, 77, 9, 77, 77, 77, 77, 77, 3, 4});
    DeviceCall device(call);
    EXPECT_EQ(run_faulty(call, device, 1 + 0 + 5), kFaultPage);
}

TEST_P(SharedAppend, PositionsOutsideOfTheTables) {
    KernelCall call = dense_call(GetParam());
    add_queries(call, GetParam());
    call.set_ints(Arg::kRotarySeqlens, {38, 2, -1});
    call.problem.mask.window_right = 0;
    DeviceCall device(call);
    EXPECT_EQ(run_faulty(call, device, 2 + 5 + 4), kFaultPosition);
    const Values rotated = device.values(Arg::kQRotated);
    EXPECT_TRUE(std::none_of(rotated.begin(), rotated.end(), [](double x) { return std::isnan(x); }));
    EXPECT_EQ(rotated.back(), call.at(Arg::kQ, 5039)) << "behind rotary_dim a query is copied";
}

TEST_P(SharedAppend, RaggedRowsThatContradict) {
    KernelCall call = dense_call(GetParam());
    call.set(Arg::kKNew, GetParam(), {10, 3, 70}, random_values(2100, 1));
    call.set(Arg::kVNew, GetParam(), {10, 3, 33}, random_values(990, 2));
    call.set_ints(Arg::kCuSeqlensKNew, {0, 4, 2, 12});
    DeviceCall device(call);
    device.run(append_row());
    EXPECT_EQ(device.values(Arg::kErrorFlag)[0], kFaultNewRows);
}

TEST_P(SharedAppend, FaultsAddUpAndNoFlagIsNeeded) {
    KernelCall call = dense_call(GetParam());
    call.set_ints(Arg::kCacheSeqlens, {7, 40, 20}).set_ints(Arg::kCacheBatchIdx, {9, 0, 2});
    call.set_ints(Arg::kErrorFlag, {1 << 20});
    DeviceCall device(call);
    EXPECT_EQ(run_faulty(call, device, 5), kFaultLength | kFaultCacheRow | 1 << 20);
    call.drop(Arg::kErrorFlag);
    DeviceCall silent(call);
    silent.run(append_row());
}

}  // namespace
}  // namespace tilewise::test
