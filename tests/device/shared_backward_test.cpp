// What a backward does before and after its tiles, against plain host loops.
#include <cmath>

#include "core/view.hpp"
#include "cuda/shared/bwd_epilogue.hpp"
#include "cuda/shared/bwd_prologue.hpp"
#include "shared_device_call.hpp"

namespace tilewise::test {
namespace {

constexpr DType kF32 = DType::kF32;
constexpr int64_t kHeads = 6, kHeadsKv = 2, kTokens = 14, kKeys = 20;

struct BackwardCase {
    DType dtype = kF32;
    int64_t head_dim = 64;
    int64_t head_dim_v = 64;
    bool ragged = false;
    bool partly_used = false;
    bool with_sums = true;  // of dk, dv in the workspace
};
void PrintTo(const BackwardCase& c, std::ostream* out) {
    *out << name_of(c.dtype) << "_" << c.head_dim << "_" << c.head_dim_v << (c.ragged ? "_ragged" : "_dense")
         << (c.partly_used ? "_used" : "") << (c.with_sums ? "_sums" : "");
}

// Query tokens and key rows that a sequence uses. Dense: 2 sequences of 7 queries and 10 keys; ragged: 3 of (5, 0, 8) queries and
// (9, 4, 6) keys, one token of each kind behind the last.
std::vector<bool> used_queries(const BackwardCase& c) {
    std::vector<bool> used(kTokens, true);
    if (c.ragged) used[13] = false;
    if (c.partly_used)
        for (const int token : c.ragged ? std::vector<int>{3, 4} : std::vector<int>{4, 5, 6})
            used[static_cast<size_t>(token)] = false;
    return used;
}
std::vector<bool> used_keys(const BackwardCase& c) {
    std::vector<bool> used(kKeys, true);
    if (c.ragged) used[19] = false;
    if (c.partly_used)
        for (const int key : c.ragged ? std::vector<int>{9, 10, 11, 12, 18} : std::vector<int>{0, 1, 8, 9, 10, 11})
            used[static_cast<size_t>(key)] = false;
    return used;
}

KernelCall backward_call(const BackwardCase& c) {
    KernelCall call(Op::kBackward);
    const auto tensor = [&](Arg arg, int64_t rows, int64_t heads, int64_t dim, bool filled) {
        const std::vector<int64_t> shape =
            c.ragged ? std::vector<int64_t>{rows, heads, dim} : std::vector<int64_t>{2, rows / 2, heads, dim};
        call.set(
            arg, c.dtype, shape,
            filled ? random_values(static_cast<size_t>(rows * heads * dim), static_cast<uint64_t>(arg)) : Values{});
    };
    for (const Arg arg : {Arg::kQ, Arg::kGradQ}) tensor(arg, kTokens, kHeads, c.head_dim, false);
    for (const Arg arg : {Arg::kO, Arg::kGradO}) tensor(arg, kTokens, kHeads, c.head_dim_v, true);
    for (const Arg arg : {Arg::kK, Arg::kGradK}) tensor(arg, kKeys, kHeadsKv, c.head_dim, false);
    for (const Arg arg : {Arg::kV, Arg::kGradV}) tensor(arg, kKeys, kHeadsKv, c.head_dim_v, false);
    const std::vector<int64_t> rows =
        c.ragged ? std::vector<int64_t>{kHeads, kTokens} : std::vector<int64_t>{2, kHeads, kTokens / 2};
    Values lse = random_values(kTokens * kHeads, 3, 2.0);
    lse[2] = -kInf;
    call.set(Arg::kLse, kF32, rows, lse).set(Arg::kGradLse, kF32, rows, random_values(kTokens * kHeads, 4));
    call.set(Arg::kSink, kF32, {kHeads}, {0.5, -kInf, 1, -2, 0, 3}).set(Arg::kGradSink, kF32, {kHeads});
    if (c.ragged) {
        call.set_ints(Arg::kCuSeqlensQ, {0, 5, 5, 13}).set_ints(Arg::kCuSeqlensK, {0, 9, 13, 19});
        if (c.partly_used) call.set_ints(Arg::kSequsedQ, {3, 0, 8}).set_ints(Arg::kSequsedK, {9, 0, 5});
    } else if (c.partly_used) {
        call.set_ints(Arg::kSequsedQ, {4, 7}).set_ints(Arg::kSequsedK, {8, 10}).set_ints(Arg::kLeftpadK, {2, 2});
    }
    return call;
}

// (token, head) of lse's element.
size_t lse_index(const BackwardCase& c, int64_t token, int64_t head) {
    const int64_t per_batch = kTokens / 2;
    return static_cast<size_t>(c.ragged ? head * kTokens + token
                                        : (token / per_batch * kHeads + head) * per_batch + token % per_batch);
}

struct Scratch {
    explicit Scratch(const BackwardCase& c)
        : dq(kTokens * kHeads * c.head_dim * 4),
          dk(kKeys * kHeadsKv * c.head_dim * 4),
          dv(kKeys * kHeadsKv * c.head_dim_v * 4),
          delta(kTokens * kHeads * 4),
          lse_log2(kTokens * kHeads * 4),
          workspace(1 << 16) {}
    DeviceMemory dq, dk, dv, delta, lse_log2, workspace;
};

cuda::BackwardParams params_of(const BackwardCase& c, DeviceCall& device, const Scratch& scratch) {
    WorkspaceLayout layout;
    cuda::add_sink_block(layout, device.step, device.step.sizes.total_q);
    EXPECT_LE(layout.bytes(), 1 << 16);
    device.step.workspace = layout.take_blocks();
    device.arguments.workspace = scratch.workspace.data();
    cuda::BackwardParams params;
    params.view = make_attention_view(device.step, device.arguments);
    params.grad.o = head_tensor(device.step, device.arguments, Arg::kGradO);
    params.grad.q = head_tensor(device.step, device.arguments, Arg::kGradQ);
    params.grad.k = head_tensor(device.step, device.arguments, Arg::kGradK);
    params.grad.v = head_tensor(device.step, device.arguments, Arg::kGradV);
    params.grad.lse = row_tensor(device.step, device.arguments, Arg::kGradLse);
    params.scratch.dq = c.with_sums ? scratch.dq.as<float>() : nullptr;
    params.scratch.dk = c.with_sums ? scratch.dk.as<float>() : nullptr;
    params.scratch.dv = c.with_sums ? scratch.dv.as<float>() : nullptr;
    params.scratch.delta = scratch.delta.as<float>();
    params.scratch.lse_log2 = scratch.lse_log2.as<float>();
    params.scratch.num_rows = kTokens * kHeads;
    params.scratch.rows_per_batch = c.ragged ? 0 : kTokens / 2;
    params.scratch.head_rows = c.ragged ? kTokens : kTokens / 2;
    return params;
}

Values doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

class SharedBackward : public testing::TestWithParam<BackwardCase> {
protected:
    void SetUp() override { TILEWISE_NEEDS_GPU(); }
};
INSTANTIATE_TEST_SUITE_P(Cases, SharedBackward,
                         testing::Values(BackwardCase{}, BackwardCase{DType::kBF16, 128, 128, false, true, true},
                                         BackwardCase{DType::kF16, 72, 40, true, false, true},
                                         BackwardCase{DType::kBF16, 33, 17, true, true, true},
                                         BackwardCase{kF32, 256, 512, true, true, false},
                                         BackwardCase{kF32, 5, 7, false, true, false},
                                         BackwardCase{DType::kF16, 64, 64, false, true, false}));

TEST_P(SharedBackward, PrologueComputesDeltaAndLse) {
    const BackwardCase c = GetParam();
    const KernelCall call = backward_call(c);
    DeviceCall device(call);
    const Scratch scratch(c);
    const Status status = cuda::launch_bwd_prologue(params_of(c, device, scratch), device.step, device.arguments);
    ASSERT_TRUE(status.ok()) << status.message();
    DeviceCall::wait();

    const std::vector<bool> used = used_queries(c);
    Values delta(kTokens * kHeads), lse_log2(kTokens * kHeads), grad_sink(kHeads, 0.0);
    for (int64_t token = 0; token < kTokens; ++token)
        for (int64_t head = 0; head < kHeads; ++head) {
            const size_t place = lse_index(c, token, head);
            const auto index = static_cast<int64_t>(place);
            double sum = 0, lse = -kInf;
            if (used[static_cast<size_t>(token)]) {
                for (int64_t d = 0; d < c.head_dim_v; ++d) {
                    const int64_t at = (token * kHeads + head) * c.head_dim_v + d;
                    sum += call.at(Arg::kO, at) * call.at(Arg::kGradO, at);
                }
                sum -= call.at(Arg::kGradLse, index);
                lse = call.at(Arg::kLse, index);
            }
            delta[place] = sum;
            lse_log2[place] = lse == -kInf ? kInf : lse / std::log(2.0);
            if (lse != -kInf) grad_sink[static_cast<size_t>(head)] -= std::exp(call.at(Arg::kSink, head) - lse) * sum;
        }
    expect_near(doubles(scratch.delta.read<float>(kTokens * kHeads)), delta, 2e-4, "delta");
    expect_near(doubles(scratch.lse_log2.read<float>(kTokens * kHeads)), lse_log2, 2e-6, "lse");
    double largest = 1;
    for (const double x : grad_sink) largest = std::max(largest, std::abs(x));
    expect_near(device.values(Arg::kGradSink), grad_sink, 1e-5 * largest, "grad_sink");
}

// Rows of no sequence hold zeros afterwards, all others their old bytes (NaN).
void expect_cleared(const Values& values, const std::vector<bool>& used, const std::string& what) {
    Values expected;
    const size_t width = values.size() / used.size();
    for (const bool is_used : used) expected.insert(expected.end(), width, is_used ? kNaN : 0.0);
    expect_near(values, expected, 0, what);
}

TEST_P(SharedBackward, PrologueClears) {
    const BackwardCase c = GetParam();
    DeviceCall device(backward_call(c));
    const Scratch scratch(c);
    const Status status = cuda::launch_bwd_prologue(params_of(c, device, scratch), device.step, device.arguments);
    ASSERT_TRUE(status.ok()) << status.message();
    DeviceCall::wait();
    if (c.with_sums) {
        for (const auto& [memory, count] : {std::pair{&scratch.dq, kTokens * kHeads * c.head_dim},
                                            std::pair{&scratch.dk, kKeys * kHeadsKv * c.head_dim},
                                            std::pair{&scratch.dv, kKeys * kHeadsKv * c.head_dim_v}})
            expect_near(doubles(memory->read<float>(static_cast<size_t>(count))),
                        Values(static_cast<size_t>(count), 0.0), 0, "sums");
        return;
    }
    expect_cleared(device.values(Arg::kGradQ), used_queries(c), "grad_q");
    expect_cleared(device.values(Arg::kGradK), used_keys(c), "grad_k");
    expect_cleared(device.values(Arg::kGradV), used_keys(c), "grad_v");
}

TEST_P(SharedBackward, EpilogueScalesAndRounds) {
    const BackwardCase c = GetParam();
    KernelCall call = backward_call(c);
    call.problem.score.softmax_scale = 0.375f;
    call.problem.score.has_softmax_scale = true;
    DeviceCall device(call);
    Scratch scratch(c);
    const Values dq = random_values(static_cast<size_t>(kTokens * kHeads * c.head_dim), 11);
    const Values dk = random_values(static_cast<size_t>(kKeys * kHeadsKv * c.head_dim), 12);
    const Values dv = random_values(static_cast<size_t>(kKeys * kHeadsKv * c.head_dim_v), 13);
    scratch.dq.write(std::vector<float>(dq.begin(), dq.end()));
    scratch.dk.write(std::vector<float>(dk.begin(), dk.end()));
    scratch.dv.write(std::vector<float>(dv.begin(), dv.end()));
    const Status status = cuda::launch_bwd_epilogue(params_of(c, device, scratch), device.step, device.arguments);
    ASSERT_TRUE(status.ok()) << status.message();
    DeviceCall::wait();
    const auto expect = [&](Arg arg, const Values& sums, float factor) {
        KernelCall rounded(Op::kBackward);
        Values scaled;
        for (const double x : sums) scaled.push_back(static_cast<double>(static_cast<float>(x) * factor));
        rounded.set(arg, c.dtype, {static_cast<int64_t>(sums.size())}, scaled);
        expect_near(device.values(arg), c.with_sums ? rounded.values(arg) : Values(sums.size(), kNaN), 0, name_of(arg));
    };
    expect(Arg::kGradQ, dq, 0.375f);
    expect(Arg::kGradK, dk, 0.375f);
    expect(Arg::kGradV, dv, 1.0f);
}

// More tokens than one chunk of the sink's sum, repeated: the same bits.
TEST(SharedBackwardSink, ManyRowsRepeatBitForBit) {
    TILEWISE_NEEDS_GPU();
    KernelCall call(Op::kBackward);
    const int64_t rows = 5000, heads = 33;
    for (const Arg arg : {Arg::kQ, Arg::kK, Arg::kV, Arg::kGradQ, Arg::kGradK, Arg::kGradV})
        call.set(arg, kF32, {1, arg == Arg::kQ || arg == Arg::kGradQ ? rows : 1, heads, 4});
    for (const Arg arg : {Arg::kO, Arg::kGradO})
        call.set(arg, kF32, {1, rows, heads, 4},
                 random_values(static_cast<size_t>(rows * heads * 4), static_cast<uint64_t>(arg)));
    call.set(Arg::kLse, kF32, {1, heads, rows}, random_values(static_cast<size_t>(rows * heads), 3));
    call.set(Arg::kSink, kF32, {heads}, random_values(static_cast<size_t>(heads), 4))
        .set(Arg::kGradSink, kF32, {heads});
    Values expected(static_cast<size_t>(heads), 0.0);
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t head = 0; head < heads; ++head) {
            double delta = 0;
            for (int64_t d = 0; d < 4; ++d)
                delta +=
                    call.at(Arg::kO, (row * heads + head) * 4 + d) * call.at(Arg::kGradO, (row * heads + head) * 4 + d);
            expected[static_cast<size_t>(head)] -=
                std::exp(call.at(Arg::kSink, head) - call.at(Arg::kLse, head * rows + row)) * delta;
        }
    std::vector<std::vector<unsigned char>> results;
    for (int repeat = 0; repeat < 3; ++repeat) {
        DeviceCall device(call);
        const DeviceMemory delta(rows * heads * 4), lse_log2(rows * heads * 4), workspace(1 << 16);
        WorkspaceLayout layout;
        cuda::add_sink_block(layout, device.step, device.step.sizes.total_q);
        device.step.workspace = layout.take_blocks();
        device.arguments.workspace = workspace.data();
        cuda::BackwardParams params;
        params.view = make_attention_view(device.step, device.arguments);
        params.grad.o = head_tensor(device.step, device.arguments, Arg::kGradO);
        params.scratch.delta = delta.as<float>();
        params.scratch.lse_log2 = lse_log2.as<float>();
        params.scratch.head_rows = rows;
        const Status status = cuda::launch_bwd_prologue(params, device.step, device.arguments);
        ASSERT_TRUE(status.ok()) << status.message();
        DeviceCall::wait();
        expect_near(device.values(Arg::kGradSink), expected, 1e-3, "grad_sink");
        results.push_back(device.bytes(Arg::kGradSink));
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace tilewise::test
