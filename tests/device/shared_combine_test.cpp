// Merging on the GPU: the operation against the CPU's, and the merge after a forward that splits the keys.
#include <cmath>

#include "core/view.hpp"
#include "cuda/shared/combine.hpp"
#include "shared_device_call.hpp"

namespace tilewise::test {
namespace {

constexpr DType kF32 = DType::kF32;

const KernelRow& combine_row() {
    static const KernelRow row = cuda::combine_row();
    return row;
}

double tolerance_of(DType dtype) { return dtype == kF32 ? 2e-6 : dtype == DType::kF16 ? 2e-3 : 2e-2; }

struct CombineCase {
    DType parts = kF32;
    DType output = kF32;
    int64_t count = 1;
    int64_t dim = 64;
    bool ragged = false;
};
void PrintTo(const CombineCase& c, std::ostream* out) {
    *out << c.count << "_parts_of_" << c.dim << "_" << name_of(c.parts) << "_" << name_of(c.output)
         << (c.ragged ? "_ragged" : "");
}

KernelCall combine_call(const CombineCase& c) {
    KernelCall call(Op::kCombine);
    const int64_t batch = 2, rows = 5, heads = 3, elements = batch * rows * heads;
    Values lse = random_values(static_cast<size_t>(c.count * elements), 1, 3.0);
    Values o = random_values(static_cast<size_t>(c.count * elements * c.dim), 2);
    // One part of one row is empty and holds NaN; one row is empty in all of its parts. The order of lse is (b, h, row).
    if (c.count > 0) lse[0] = -kInf;
    for (int64_t d = 0; c.count > 0 && d < c.dim; ++d) o[static_cast<size_t>(d)] = kNaN;
    for (int64_t n = 0; n < c.count; ++n) lse[static_cast<size_t>(n * elements + 1)] = -kInf;
    if (c.ragged) {
        call.set(Arg::kPartialO, c.parts, {c.count, batch * rows, heads, c.dim}, o);
        call.set(Arg::kPartialLse, kF32, {c.count, heads, batch * rows}, lse);
        call.set(Arg::kO, c.output, {batch * rows, heads, c.dim}).set(Arg::kLse, kF32, {heads, batch * rows});
    } else {
        call.set(Arg::kPartialO, c.parts, {c.count, batch, rows, heads, c.dim}, o);
        call.set(Arg::kPartialLse, kF32, {c.count, batch, heads, rows}, lse);
        call.set(Arg::kO, c.output, {batch, rows, heads, c.dim}).set(Arg::kLse, kF32, {batch, heads, rows});
    }
    return call;
}

class SharedCombine : public testing::TestWithParam<CombineCase> {
protected:
    void SetUp() override { TILEWISE_NEEDS_GPU(); }
};
INSTANTIATE_TEST_SUITE_P(Cases, SharedCombine,
                         testing::Values(CombineCase{kF32, kF32, 0, 8}, CombineCase{kF32, DType::kBF16, 1, 1},
                                         CombineCase{kF32, kF32, 2, 64}, CombineCase{kF32, DType::kF16, 3, 33},
                                         CombineCase{kF32, kF32, 7, 512, true}, CombineCase{kF32, DType::kBF16, 8, 128},
                                         CombineCase{kF32, kF32, 65, 96, true}, CombineCase{kF32, kF32, 130, 132},
                                         CombineCase{DType::kBF16, DType::kBF16, 5, 128},
                                         CombineCase{DType::kF16, kF32, 9, 256},
                                         CombineCase{DType::kF16, DType::kF16, 40, 72},
                                         CombineCase{DType::kBF16, kF32, 3, 7, true}));

TEST_P(SharedCombine, IsTheCpus) {
    KernelCall call = combine_call(GetParam());
    DeviceCall device(call);
    device.run(combine_row());
    call.run("cpu_combine");
    expect_near(device.values(Arg::kO), call.values(Arg::kO), tolerance_of(GetParam().output), "o");
    expect_near(device.values(Arg::kLse), call.values(Arg::kLse), 2e-6, "lse");
}

TEST_P(SharedCombine, RepeatsBitForBit) {
    const KernelCall call = combine_call(GetParam());
    DeviceCall first(call), second(call);
    first.run(combine_row());
    second.run(combine_row());
    EXPECT_EQ(first.bytes(Arg::kO), second.bytes(Arg::kO));
}

TEST(SharedCombineStrides, OddAddressesAndTransposedOutputs) {
    TILEWISE_NEEDS_GPU();
    KernelCall call = combine_call({kF32, DType::kBF16, 3, 64});
    call.problem[Arg::kO].alignment = 2;  // forbids vectors; the numbers are the same
    call.problem[Arg::kPartialO].alignment = 4;
    call.problem[Arg::kLse].stride = {15, 1, 3};
    DeviceCall device(call);
    device.run(combine_row());
    call.run("cpu_combine");
    expect_near(device.values(Arg::kO), call.values(Arg::kO), 2e-2, "o");
    expect_near(device.values(Arg::kLse), call.values(Arg::kLse), 2e-6, "lse");
}

// The parts of a split forward: f32, rows (token, head).
struct SplitCase {
    bool ragged = false;
    bool used = false;
    bool sink = false;
    int32_t num_splits = 3;
};

void check_merge(const SplitCase& c) {
    const int64_t heads = 3, dim = 20, tokens = 10, rows = tokens * heads;
    KernelCall call(Op::kForward);
    if (c.ragged) {
        call.set(Arg::kQ, kF32, {10, heads, 4})
            .set(Arg::kK, kF32, {1, 4, heads, 4})
            .set(Arg::kV, kF32, {1, 4, heads, dim});
        call.set(Arg::kO, kF32, {10, heads, dim}).set(Arg::kLse, kF32, {heads, 10});
        call.set_ints(Arg::kCuSeqlensQ, {0, 4, 4, 9});  // row 9 is of no sequence
        if (c.used) call.set_ints(Arg::kSequsedQ, {3, 0, 5});
    } else {
        call.set(Arg::kQ, kF32, {2, 5, heads, 4})
            .set(Arg::kK, kF32, {2, 4, heads, 4})
            .set(Arg::kV, kF32, {2, 4, heads, dim});
        call.set(Arg::kO, kF32, {2, 5, heads, dim}).set(Arg::kLse, kF32, {2, heads, 5});
        if (c.used) call.set_ints(Arg::kSequsedQ, {2, 5});
    }
    if (c.sink) call.set(Arg::kSink, kF32, {heads}, {0.5, -1, 2});
    DeviceCall device(call);
    const Values o = random_values(static_cast<size_t>(c.num_splits * rows * dim), 5);
    Values lse = random_values(static_cast<size_t>(c.num_splits * rows), 6);
    for (int32_t n = 0; n < c.num_splits; ++n) lse[static_cast<size_t>(n * rows + 4)] = -kInf;  // token 1, head 1
    DeviceMemory partial_o(o.size() * 4), partial_lse(lse.size() * 4);
    partial_o.write(std::vector<float>(o.begin(), o.end()));
    partial_lse.write(std::vector<float>(lse.begin(), lse.end()));

    cuda::ForwardParams params;
    params.view = make_attention_view(device.step, device.arguments);
    params.tiles.num_splits = c.num_splits;
    params.partial = {partial_o.as<float>(), partial_lse.as<float>(), rows, c.ragged ? 0 : 5};
    const Status status = cuda::merge_splits(params, device.step, device.arguments);
    ASSERT_TRUE(status.ok()) << status.message();
    DeviceCall::wait();

    const std::vector<int> used_rows =
        c.ragged ? (c.used ? std::vector<int>{0, 1, 2, 4, 5, 6, 7, 8} : std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8})
                 : (c.used ? std::vector<int>{0, 1, 5, 6, 7, 8, 9} : std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    const Values sinks = c.sink ? Values{0.5, -1, 2} : Values{-kInf, -kInf, -kInf};
    Values expected_o(static_cast<size_t>(rows * dim), kNaN), expected_lse(static_cast<size_t>(rows), kNaN);
    for (const int token : used_rows)
        for (int64_t head = 0; head < heads; ++head) {
            const int64_t row = token * heads + head;
            double sum = std::exp(sinks[static_cast<size_t>(head)]);
            for (int32_t n = 0; n < c.num_splits; ++n) sum += std::exp(lse[static_cast<size_t>(n * rows + row)]);
            const int64_t lse_at = c.ragged ? head * 10 + token : (token / 5 * heads + head) * 5 + token % 5;
            expected_lse[static_cast<size_t>(lse_at)] = std::log(sum);
            for (int64_t d = 0; d < dim; ++d) {
                double value = 0;
                for (int32_t n = 0; n < c.num_splits && sum > 0; ++n)
                    value += std::exp(lse[static_cast<size_t>(n * rows + row)]) / sum *
                             o[static_cast<size_t>((n * rows + row) * dim + d)];
                expected_o[static_cast<size_t>(row * dim + d)] = value;
            }
        }
    expect_near(device.values(Arg::kO), expected_o, 2e-6, "o");
    expect_near(device.values(Arg::kLse), expected_lse, 2e-6, "lse");
}

TEST(SharedMergeSplits, EveryShape) {
    TILEWISE_NEEDS_GPU();
    for (const bool ragged : {false, true})
        for (const bool used : {false, true})
            for (const bool sink : {false, true})
                for (const int32_t splits : {2, 3, 17}) check_merge({ragged, used, sink, splits});
}

}  // namespace
}  // namespace tilewise::test
