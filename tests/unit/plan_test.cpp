// Choosing a kernel: the cheapest that serves, every refusal with its reason, pinned rows, the messages when nothing serves, the two
// steps of a decode, and what launch refuses before anything runs.
#include "core/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "core/validate.hpp"
#include "fake_kernels.hpp"
#include "sample_problems.hpp"

namespace tilewise {
namespace {

bool mentions(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string reason_of(const Plan& plan, const std::string& kernel) {
    for (const Refusal& refusal : plan.refused)
        if (refusal.kernel == kernel) return refusal.reason;
    return {};
}

Plan planned(const Problem& problem, const std::string& device, const Registry& registry = fake::registry()) {
    Plan plan;
    const Status status = make_plan(problem, fake::recorded(device), registry, &plan);
    EXPECT_TRUE(status.ok()) << status.message();
    return plan;
}

Status refused(const Problem& problem, const std::string& device, const Registry& registry = fake::registry()) {
    Plan plan;
    Status status = make_plan(problem, fake::recorded(device), registry, &plan);
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(plan.steps.empty());
    return status;
}

TEST(Plan, CheapestRowThatServesIsChosen) {
    EXPECT_EQ(planned(samples::forward(), "cpu-avx512bf16").steps[0].row->name, "fake_forward_avx512_bf16");
    EXPECT_EQ(planned(samples::forward(), "cpu-avx2").steps[0].row->name, "fake_forward_avx2");
    EXPECT_EQ(planned(samples::forward(), "cpu-scalar").steps[0].row->name, "fake_oracle_forward");
    EXPECT_EQ(planned(samples::forward(), "h200").steps[0].row->name, "fake_sm90_forward_d128");
    EXPECT_EQ(planned(samples::forward(), "a100").steps[0].row->name, "fake_sm80_forward_d128");
}

TEST(Plan, OfEqualCostsTheFirstRowWins) {
    const auto same = [](const Step&, const DeviceInfo&) { return 1.0; };
    std::vector<KernelRow> rows;
    for (const char* name : {"first", "second"}) {
        rows.push_back(fake::row(name, DeviceKind::kCpu, Op::kForward, {DType::kBF16}, 0));
        rows.back().cost = same;
    }
    EXPECT_EQ(planned(samples::forward(), "cpu-avx2", fake::registry_of(rows)).steps[0].row->name, "first");
}

TEST(Plan, EveryRefusalKeepsItsReason) {
    Problem problem = samples::forward();
    problem.score.dropout_p = 0.25f;
    const Plan plan = planned(problem, "cpu-avx512bf16");
    EXPECT_EQ(plan.steps[0].row->name, "fake_forward_avx2");
    EXPECT_TRUE(mentions(reason_of(plan, "fake_oracle_forward"), "predicted")) << "it serves and is slower";
    EXPECT_TRUE(mentions(reason_of(plan, "fake_forward_avx512_bf16"), "dropout_p: 0.25"));
    EXPECT_TRUE(mentions(reason_of(plan, "fake_sm80_forward_d128"), "runs on a GPU"));
    EXPECT_TRUE(reason_of(plan, "fake_backward").empty()) << "rows of another operation are no candidates";

    const Plan on_avx2 = planned(problem, "cpu-avx2");
    EXPECT_TRUE(mentions(reason_of(on_avx2, "fake_forward_avx512_bf16"), "needs avx512_bf16; this CPU has avx2"));
}

TEST(Plan, NothingServesSoEachReasonIsListed) {
    Problem problem = samples::forward();
    problem[Arg::kQ] = contiguous(DType::kBF16, {3, 5, 6, 192});
    problem[Arg::kK] = contiguous(DType::kBF16, {3, 7, 2, 192});
    const Status status = refused(problem, "h200");
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_TRUE(mentions(status.message(), "forward on NVIDIA H200 (compute capability 9.0)")) << status.message();
    EXPECT_TRUE(mentions(status.message(),
                         "fake_sm80_forward_d128, fake_sm90_forward_d128: head_dim 192; it serves up to 128"));
    EXPECT_FALSE(mentions(status.message(), "fake_forward_avx2")) << "a CPU row says nothing about a GPU";
}

TEST(Plan, DevicesWithoutKernelsAreToldSo) {
    const Registry cpu_only = fake::registry_of(fake::cpu_rows());
    EXPECT_EQ(refused(samples::forward(), "h200", cpu_only).message(),
              "device: no kernel of this build runs on NVIDIA H200 (compute capability 9.0); its kernels are for: CPU");
    for (const Registry* registry : {&cpu_only, &fake::registry()})
        EXPECT_EQ(
            refused(samples::forward(), "t4", *registry).message(),
            "device: no kernel runs on Tesla T4 (compute capability 7.5); compute capability 8.0 or newer is needed");
    const Registry cuda_only = fake::registry_of(fake::cuda_rows());
    EXPECT_TRUE(mentions(refused(samples::forward(), "cpu-avx2", cuda_only).message(),
                         "its kernels are for: compute capability 8.0, compute capability 9.0"));
    EXPECT_EQ(refused(samples::forward(), "cpu-avx2", Registry{}).message(), "device: this build has no kernels");
    EXPECT_TRUE(mentions(refused(samples::backward(), "h200").message(), "no kernel of this build computes backward"));
}

TEST(Plan, InvalidProblemsAreRefusedBeforeAnyKernelIsAsked) {
    Problem problem = samples::forward();
    problem[Arg::kV] = {};
    Plan plan;
    const Status status = make_plan(problem, fake::recorded("cpu-avx2"), fake::registry(), &plan);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(plan.refused.empty());
}

TEST(Plan, APinnedRowIsUsedThoughItIsSlower) {
    Problem problem = samples::forward();
    problem.exec.kernel = "fake_oracle_forward";
    const Plan plan = planned(problem, "cpu-avx512bf16");
    EXPECT_EQ(plan.steps[0].row->name, "fake_oracle_forward");
    EXPECT_TRUE(mentions(reason_of(plan, "fake_forward_avx2"), "the call asks for fake_oracle_forward"));
}

TEST(Plan, APinnedRowThatCannotServeSaysWhy) {
    Problem problem = samples::forward();
    problem.exec.kernel = "fake_forward_avx512_bf16";
    Status status = refused(problem, "cpu-avx2");
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_TRUE(mentions(status.message(), "kernel: fake_forward_avx512_bf16 cannot serve")) << status.message();
    EXPECT_TRUE(mentions(status.message(), "needs avx512_bf16"));

    problem.exec.kernel = "fake_backward";
    status = refused(problem, "cpu-avx2");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "kernel: fake_backward computes backward; this call needs forward");
}

TEST(Plan, AnUnknownPinnedNameListsNearOnes) {
    Problem problem = samples::forward();
    problem.exec.kernel = "fake_forwrad_avx2";
    const Status status = refused(problem, "cpu-avx2");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(mentions(status.message(),
                         "kernel: no kernel is named \"fake_forwrad_avx2\"; near names are fake_forward_avx2"))
        << status.message();
    problem.exec.kernel = "sm90";
    EXPECT_TRUE(mentions(refused(problem, "cpu-avx2").message(), "near names are fake_sm90_forward_d128"));
}

TEST(Plan, ADecodeThatAppendsNothingIsAForward) {
    Problem problem = samples::decode();
    for (const Arg arg : {Arg::kKNew, Arg::kVNew, Arg::kRotaryCos, Arg::kRotarySin, Arg::kRotarySeqlens})
        problem[arg] = {};
    const Plan plan = planned(problem, "cpu-avx2");
    ASSERT_EQ(plan.steps.size(), 1u);
    const Step& forward = plan.steps[0];
    EXPECT_EQ(forward.problem.op, Op::kForward);
    EXPECT_EQ(forward.problem[Arg::kSequsedK], problem[Arg::kCacheSeqlens]);
    EXPECT_FALSE(forward.problem.has(Arg::kCacheSeqlens));
    EXPECT_TRUE(plan.shared_blocks.empty());
    EXPECT_TRUE(validate(forward.problem).ok()) << validate(forward.problem).message();
}

TEST(Plan, ADecodeThatAppendsHasTwoSteps) {
    for (const Problem& problem : {samples::decode(), samples::paged_decode()}) {
        const Plan plan = planned(problem, "cpu-avx512bf16");
        ASSERT_EQ(plan.steps.size(), 2u);
        const Step &append = plan.steps[0], &forward = plan.steps[1];
        EXPECT_EQ(append.problem.op, Op::kAppend);
        EXPECT_TRUE(append.problem.has(Arg::kKNew));
        EXPECT_TRUE(append.problem.has(Arg::kQ));
        EXPECT_FALSE(append.problem.has(Arg::kO));
        EXPECT_EQ(append.problem.has(Arg::kPageTable), problem.has(Arg::kPageTable));

        EXPECT_TRUE(validate(forward.problem).ok()) << validate(forward.problem).message();
        EXPECT_FALSE(forward.problem.has(Arg::kKNew));
        EXPECT_FALSE(forward.problem.has(Arg::kRotaryCos));
        EXPECT_TRUE(forward.problem.has(Arg::kLeftpadK));
        EXPECT_EQ(forward.problem[Arg::kSequsedK], contiguous(DType::kI32, {3}));

        ASSERT_EQ(plan.shared_blocks.size(), 2u);
        EXPECT_EQ(append.redirected[Arg::kTotalSeqlens], forward.redirected[Arg::kSequsedK]);
        EXPECT_EQ(append.redirected[Arg::kQRotated], forward.redirected[Arg::kQ]);
        EXPECT_EQ(append.redirected[Arg::kTotalSeqlens], 1 + plan.shared_blocks[0].offset);
        EXPECT_EQ(append.redirected[Arg::kQRotated], 1 + plan.shared_blocks[1].offset);
        EXPECT_EQ(plan.shared_blocks[0].bytes, 3 * 4);
        EXPECT_EQ(plan.shared_blocks[1].bytes, 3 * 5 * 6 * 8 * 2);
        for (const WorkspaceBlock& block : forward.workspace) EXPECT_GE(block.offset, forward.workspace_base);
        EXPECT_EQ(plan.workspace_bytes, forward.workspace.back().offset + forward.workspace.back().bytes);
    }
}

TEST(Plan, TheAppendOfADecodeRaisesTheFlag) {
    Problem problem = samples::decode();
    problem[Arg::kErrorFlag] = contiguous(DType::kI32, {1});
    const Plan plan = planned(problem, "cpu-avx2");
    ASSERT_EQ(plan.steps.size(), 2u);
    EXPECT_TRUE(plan.steps[0].problem.has(Arg::kErrorFlag));
    EXPECT_FALSE(plan.steps[1].problem.has(Arg::kErrorFlag));
}

TEST(Plan, WithoutRotaryTheCallersQueriesAreRead) {
    Problem problem = samples::decode();
    for (const Arg arg : {Arg::kRotaryCos, Arg::kRotarySin, Arg::kRotarySeqlens}) problem[arg] = {};
    const Plan plan = planned(problem, "cpu-avx2");
    ASSERT_EQ(plan.steps.size(), 2u);
    EXPECT_FALSE(plan.steps[0].problem.has(Arg::kQ));
    EXPECT_EQ(plan.steps[1].redirected[Arg::kQ], 0);
    EXPECT_EQ(plan.steps[1].problem[Arg::kQ], problem[Arg::kQ]);
    EXPECT_EQ(plan.shared_blocks.size(), 1u);
}

// Rotated queries are packed, whatever the strides of the caller's; their positions depend on the mask.
TEST(Plan, RotatedQueriesAreContiguousAndKeepTheMask) {
    Problem problem = samples::decode();
    problem[Arg::kQ].stride = {1000, 100, 16, 2};
    problem.mask.window_right = 0;
    const Plan plan = planned(problem, "cpu-avx2");
    EXPECT_EQ(plan.steps[0].problem[Arg::kQ].stride, problem[Arg::kQ].stride);
    EXPECT_EQ(plan.steps[0].problem.mask, problem.mask);
    EXPECT_EQ(plan.steps[1].problem[Arg::kQ], contiguous(DType::kBF16, {3, 5, 6, 8}));
}

TEST(Plan, PinningOneStepOfADecodeLeavesTheOther) {
    Problem problem = samples::decode();
    problem.exec.kernel = "fake_oracle_forward";
    const Plan plan = planned(problem, "cpu-avx2");
    EXPECT_EQ(plan.steps[0].row->name, "fake_append");
    EXPECT_EQ(plan.steps[1].row->name, "fake_oracle_forward");
    problem.exec.kernel = "fake_combine";
    EXPECT_EQ(refused(problem, "cpu-avx2").message(),
              "kernel: fake_combine computes combine; this call needs append and forward");
}

TEST(Plan, EverySampleIsServedAndPrints) {
    for (const samples::Sample& sample : samples::kAll) {
        const Plan plan = planned(sample.make(), "cpu-avx512bf16");
        EXPECT_FALSE(plan.steps.empty()) << sample.name;
        EXPECT_GT(plan.predicted_seconds, 0) << sample.name;
        EXPECT_TRUE(mentions(to_text(plan), plan.steps[0].row->name)) << sample.name;
        EXPECT_EQ(to_text(plan), to_text(planned(sample.make(), "cpu-avx512bf16"))) << "a plan is a pure function";
    }
}

TEST(Plan, NotesNameTheSlowerPathAndItsCause) {
    Problem problem = samples::forward();
    problem[Arg::kK].stride = {1000, 100, 24, 3};
    problem[Arg::kV].stride = {720, 20, 10, 1};
    const Plan on_cpu = planned(problem, "cpu-avx2");
    ASSERT_EQ(on_cpu.notes.size(), 1u);
    EXPECT_EQ(on_cpu.notes[0], "k: last dimension has stride 3: elements are gathered one by one");
    const Plan on_gpu = planned(problem, "a100");
    EXPECT_TRUE(std::any_of(on_gpu.notes.begin(), on_gpu.notes.end(), [](const std::string& note) {
        return mentions(note, "v: rows start at multiples of 4 bytes");
    }));
    Problem doubles = samples::forward();
    for (const Arg arg : {Arg::kQ, Arg::kK, Arg::kV, Arg::kO}) doubles[arg].dtype = DType::kF64;
    ASSERT_EQ(planned(doubles, "cpu-avx2").notes.size(), 1u);
    EXPECT_TRUE(mentions(planned(doubles, "cpu-avx2").notes[0], "f64"));
    EXPECT_TRUE(planned(samples::forward(), "cpu-avx2").notes.empty());
}

}  // namespace
}  // namespace tilewise
