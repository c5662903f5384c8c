// launch: what it refuses before a step runs, what the steps are handed, and that a failing step is the last one.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "fake_kernels.hpp"
#include "sample_problems.hpp"

namespace tilewise {
namespace {

DeviceInfo a_real_cpu() {
    DeviceInfo device = fake::recorded("cpu-avx512bf16");
    device.recorded = false;
    return device;
}

// A plan with memory for every tensor of its problem, all zeros, and a workspace.
struct Prepared {
    Plan plan;
    Arguments arguments;
    std::vector<std::vector<int64_t>> memory;

    explicit Prepared(const Problem& problem, const Registry& registry = fake::registry()) {
        const Status status = make_plan(problem, a_real_cpu(), registry, &plan);
        EXPECT_TRUE(status.ok()) << status.message();
        for (size_t i = 0; i < kNumArgs; ++i) {
            const TensorDesc& tensor = problem.tensors.values[i];
            if (tensor.given())
                arguments.pointers.values[i] = allocate((tensor.last_offset() + 1) * size_of(tensor.dtype));
        }
        auto* const cache_rows = arguments.get<int32_t>(Arg::kCacheBatchIdx);  // distinct, as appending needs them
        for (int32_t n = 0; cache_rows != nullptr && n < 3; ++n) cache_rows[n] = n;
        auto* workspace = static_cast<unsigned char*>(allocate(plan.workspace_bytes + kWorkspaceAlignment));
        const auto misplaced = reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment;
        arguments.workspace = workspace + (kWorkspaceAlignment - misplaced) % kWorkspaceAlignment;
        arguments.workspace_bytes = plan.workspace_bytes;
        fake::launches().clear();
    }
    void* allocate(int64_t bytes) {
        memory.emplace_back(static_cast<size_t>(bytes / 8 + 1), 0);
        return memory.back().data();
    }
};

std::string refusal_of(const Prepared& p) {
    const Status status = launch(p.plan, p.arguments);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(fake::launches().empty()) << "nothing runs after a refusal";
    return status.message();
}

TEST(Launch, StepsRunInOrderWithTheCallersPointers) {
    const Prepared p(samples::decode());
    const Status status = launch(p.plan, p.arguments);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(fake::launches().size(), 2u);
    EXPECT_EQ(fake::launches()[0].kernel, "fake_append");
    EXPECT_EQ(fake::launches()[1].kernel, "fake_forward_avx512_bf16");
    for (const fake::Launch& step : fake::launches()) {
        EXPECT_EQ(step.arguments.pointers[Arg::kK], p.arguments.pointers[Arg::kK]);
        EXPECT_EQ(step.arguments.workspace, p.arguments.workspace);
    }
}

TEST(Launch, CacheSeqlensPlaysSequsedWhenNothingIsAppended) {
    Problem problem = samples::decode();
    for (const Arg arg : {Arg::kKNew, Arg::kVNew, Arg::kRotaryCos, Arg::kRotarySin, Arg::kRotarySeqlens})
        problem[arg] = {};
    const Prepared p(problem);
    const Status status = launch(p.plan, p.arguments);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(fake::launches().size(), 1u);
    EXPECT_EQ(fake::launches()[0].arguments.pointers[Arg::kSequsedK], p.arguments.pointers[Arg::kCacheSeqlens]);
}

TEST(Launch, RecordedDevicesLaunchNothing) {
    Prepared p(samples::forward());
    p.plan.device = fake::recorded("h200");
    EXPECT_EQ(refusal_of(p), "device: recorded:h200 is a description; nothing launches on it");
    p.plan.device.name = "NVIDIA H200 of another kind";
    EXPECT_EQ(refusal_of(p), "device: NVIDIA H200 of another kind is a description; nothing launches on it");
}

TEST(Launch, APlanThatWasNotMadeIsRefused) {
    Prepared p(samples::forward());
    p.plan.steps.clear();
    EXPECT_EQ(refusal_of(p), "plan: it has no steps; only a plan that was made can be launched");
}

TEST(Launch, WorkspaceMessagesNameTheBytes) {
    Prepared p(samples::forward());
    const int64_t needed = p.plan.workspace_bytes;
    ASSERT_GT(needed, 0);
    void* const workspace = p.arguments.workspace;

    p.arguments.workspace = nullptr;
    EXPECT_EQ(refusal_of(p), fmt::format("workspace: it is null; this plan needs {} bytes", needed));
    p.arguments.workspace = workspace;
    p.arguments.workspace_bytes = needed - 1;
    EXPECT_EQ(refusal_of(p), fmt::format("workspace: it has {} bytes; this plan needs {}", needed - 1, needed));
    p.arguments.workspace_bytes = needed;
    p.arguments.workspace = static_cast<unsigned char*>(workspace) + 4;
    EXPECT_EQ(refusal_of(p), "workspace: its address lies 4 bytes past a multiple of 64; it must be a multiple");
}

TEST(Launch, APlanWithoutWorkspaceTakesNone) {
    Prepared p(samples::append());
    ASSERT_EQ(p.plan.workspace_bytes, 0);
    p.arguments.workspace = nullptr;
    p.arguments.workspace_bytes = 0;
    const Status status = launch(p.plan, p.arguments);
    EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Launch, PointersAndValuesAreCheckedFirst) {
    Prepared p(samples::paged_decode());
    auto* const lengths = static_cast<int32_t*>(p.arguments.pointers[Arg::kCacheSeqlens]);
    lengths[1] = 1000;
    EXPECT_NE(refusal_of(p).find("1000"), std::string::npos);
    lengths[1] = 0;
    p.arguments.pointers[Arg::kKNew] = nullptr;
    EXPECT_EQ(refusal_of(p).substr(0, 5), "k_new");
}

TEST(Launch, AFailingStepIsTheLast) {
    std::vector<KernelRow> rows = fake::cpu_rows();
    for (KernelRow& row : rows)
        if (row.op == Op::kAppend) row.launch = fake::fail_launch;
    const Registry registry = fake::registry_of(rows);
    const Prepared p(samples::decode(), registry);
    const Status status = launch(p.plan, p.arguments);
    EXPECT_EQ(status.code(), StatusCode::kDeviceError);
    EXPECT_EQ(status.message(), "fake_append failed");
    EXPECT_TRUE(fake::launches().empty());
}

}  // namespace
}  // namespace tilewise
