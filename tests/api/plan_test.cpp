// Plans of the C interface: what they tell, what they can be launched on, and what they refuse.
#include <cmath>
#include <nlohmann/json.hpp>

#include "support.hpp"

namespace {

using namespace api_test;
using nlohmann::json;

class Plans : public testing::Test {
protected:
    tilewise_status launch(const PlanPtr& plan, const tilewise_attention& call) {
        const Memory workspace(tilewise_plan_workspace_bytes(plan.get()));
        return tilewise_launch(plan.get(), &call, workspace.data(), workspace.size(), nullptr);
    }

    DevicePtr cpu = open("cpu");
    Forward f;
};

TEST_F(Plans, Describe) {
    const PlanPtr plan = make_plan(cpu, TILEWISE_FORWARD, f.call);
    const std::string kernel = tilewise_plan_kernel(plan.get());
    EXPECT_EQ(kernel.rfind("cpu_", 0), 0u) << kernel;
    EXPECT_NE(std::string(tilewise_plan_text(plan.get())).find(kernel), std::string::npos);
    EXPECT_EQ(tilewise_plan_text(plan.get()), tilewise_plan_text(plan.get())) << "the text is written once";
    const json object = json::parse(tilewise_plan_json(plan.get()));
    EXPECT_EQ(object.at("op"), "forward");
    EXPECT_EQ(object.at("steps").back().at("kernel"), kernel);
    EXPECT_EQ(object.at("workspace_bytes"), tilewise_plan_workspace_bytes(plan.get()));
    EXPECT_EQ(object.at("problem").at("tensors").at("q").at("shape"), json({2, 5, 4, 8}));
}

TEST_F(Plans, NeedNoPointers) {
    tilewise_attention shapes = f.call;
    for (tilewise_tensor* t : {&shapes.q, &shapes.k, &shapes.v, &shapes.o, &shapes.lse}) t->data = nullptr;
    const PlanPtr plan = make_plan(cpu, TILEWISE_FORWARD, shapes);
    ASSERT_EQ(launch(plan, f.call), TILEWISE_OK) << tilewise_last_error();
    expect_near(f.o, plain_attention(f, false));
}

TEST_F(Plans, OutliveTheirDeviceAndServeOtherPointers) {
    f.call.mask.flags = TILEWISE_MASK_CAUSAL;
    const PlanPtr plan = make_plan(cpu, TILEWISE_FORWARD, f.call);
    cpu.reset();
    Forward other({}, 77);
    other.call.mask.flags = TILEWISE_MASK_CAUSAL;
    for (Forward* one : {&f, &other}) {
        ASSERT_EQ(launch(plan, one->call), TILEWISE_OK) << tilewise_last_error();
        expect_near(one->o, plain_attention(*one, true));
    }
}

TEST_F(Plans, RefuseOtherTensors) {
    const PlanPtr plan = make_plan(cpu, TILEWISE_FORWARD, f.call);
    tilewise_attention call = f.call;
    call.v.shape[1] -= 1;
    expect_invalid(launch(plan, call), "v", "plan");
    call = f.call;
    call.k.stride[1] += 1;
    expect_invalid(launch(plan, call), "k", "strides");
    call = f.call;
    call.q.dtype = TILEWISE_BF16;
    expect_invalid(launch(plan, call), "q", "bf16");
    call = f.call;
    call.lse = tilewise_tensor{};
    expect_invalid(launch(plan, call), "lse", "none");
    std::vector<float> slopes(4);
    call = f.call;
    call.score.alibi_slopes = f32(slopes, {4});
    expect_invalid(launch(plan, call), "alibi_slopes");
    call = f.call;
    call.struct_size = 8;
    expect_invalid(launch(plan, call), "struct_size");
    EXPECT_TRUE(all_nan(f.o));
}

TEST_F(Plans, RefuseOtherOptions) {
    const PlanPtr plan = make_plan(cpu, TILEWISE_FORWARD, f.call);
    tilewise_attention call = f.call;
    call.mask.flags = TILEWISE_MASK_CAUSAL;
    expect_invalid(launch(plan, call), "window_right");
    call = f.call;
    call.score.softcap = 2.0f;
    expect_invalid(launch(plan, call), "softcap");
    call = f.call;
    call.score.flags = TILEWISE_SCORE_HAS_SCALE;
    expect_invalid(launch(plan, call), "softmax_scale");
    call = f.call;
    call.score.dropout_seed = 7;
    expect_invalid(launch(plan, call), "dropout_seed");
    call = f.call;
    call.options.num_threads = 1;
    expect_invalid(launch(plan, call), "num_threads");
    call = f.call;
    call.options.kernel = "cpu_reference_forward";
    expect_invalid(launch(plan, call), "kernel");
    EXPECT_TRUE(all_nan(f.o));
}

TEST_F(Plans, StridesOfSingleElementsMayDiffer) {
    Forward one(Shape{1, 5, 9, 4, 2, 8, 6});
    const PlanPtr plan = make_plan(cpu, TILEWISE_FORWARD, one.call);
    one.call.q.stride[0] = 12345;
    ASSERT_EQ(launch(plan, one.call), TILEWISE_OK) << tilewise_last_error();
    expect_near(one.o, plain_attention(one, false));
}

TEST_F(Plans, AlignmentMayBeBetterNotWorse) {
    std::vector<float> shifted(f.q.size() + 4);
    auto* unaligned = shifted.data();
    while (reinterpret_cast<uintptr_t>(unaligned) % 16 != 4) ++unaligned;
    std::copy(f.q.begin(), f.q.end(), unaligned);
    tilewise_attention misaligned = f.call;
    misaligned.q.data = unaligned;

    const PlanPtr aligned_plan = make_plan(cpu, TILEWISE_FORWARD, f.call);
    expect_invalid(launch(aligned_plan, misaligned), "q", "aligned to 4 bytes");
    const PlanPtr any_plan = make_plan(cpu, TILEWISE_FORWARD, misaligned);
    for (const tilewise_attention* call : {&misaligned, &f.call}) {
        std::fill(f.o.begin(), f.o.end(), 0.0f);
        ASSERT_EQ(launch(any_plan, *call), TILEWISE_OK) << tilewise_last_error();
        expect_near(f.o, plain_attention(f, false));
    }
}

// The seed and offset are the launch's: one plan serves every step of a training run.
TEST_F(Plans, TakeTheDropoutSeedOfTheLaunch) {
    const auto result = [&](const PlanPtr& plan, uint64_t seed, uint64_t offset) {
        f.call.score.dropout_seed = seed;
        f.call.score.dropout_offset = offset;
        EXPECT_EQ(launch(plan, f.call), TILEWISE_OK) << tilewise_last_error();
        return f.o;
    };
    f.call.score.dropout_p = 0.5f;
    f.call.score.dropout_seed = 1;
    const PlanPtr first_plan = make_plan(cpu, TILEWISE_FORWARD, f.call);
    f.call.score.dropout_seed = 2;
    f.call.score.dropout_offset = 3;
    const PlanPtr second_plan = make_plan(cpu, TILEWISE_FORWARD, f.call);
    const auto one = result(first_plan, 1, 0), other = result(first_plan, 2, 3);
    EXPECT_NE(one, other);
    EXPECT_EQ(result(second_plan, 1, 0), one);
    EXPECT_EQ(result(second_plan, 2, 3), other);
    EXPECT_EQ(result(first_plan, 1, 0), one);

    f.call.score.dropout_seed = 2;
    f.call.score.dropout_offset = 3;
    ASSERT_EQ(run_forward(cpu, f.call), TILEWISE_OK) << tilewise_last_error();
    EXPECT_EQ(f.o, other) << "the one-call form draws the same numbers";
}

TEST_F(Plans, PinAKernel) {
    f.call.options.kernel = "cpu_reference_forward";
    const PlanPtr plan = make_plan(cpu, TILEWISE_FORWARD, f.call);
    EXPECT_STREQ(tilewise_plan_kernel(plan.get()), "cpu_reference_forward");
    ASSERT_EQ(launch(plan, f.call), TILEWISE_OK) << tilewise_last_error();
    expect_near(f.o, plain_attention(f, false));

    tilewise_plan* none = nullptr;
    for (const char* wrong : {"cpu_reference", "cpu_reference_backward"}) {
        f.call.options.kernel = wrong;
        expect_invalid(tilewise_plan_create(cpu.get(), TILEWISE_FORWARD, &f.call, &none), "kernel", wrong);
        EXPECT_EQ(none, nullptr);
    }
}

TEST_F(Plans, RecordedDevicesPlanOrSayWhyNot) {
    const int32_t count = tilewise_device_count(1);
    for (int32_t i = tilewise_device_count(0); i < count; ++i) {
        const DevicePtr device = open(tilewise_device_name(i));
        const json description = json::parse(tilewise_device_json(device.get()));
        tilewise_plan* raw = nullptr;
        const tilewise_status status = tilewise_plan_create(device.get(), TILEWISE_FORWARD, &f.call, &raw);
        const PlanPtr plan(raw);
        // A GPU gets a plan where this build has a kernel for it.
        if (description.at("kind") == "cpu" || status == TILEWISE_OK) {
            ASSERT_EQ(status, TILEWISE_OK) << tilewise_last_error();
            expect_invalid(launch(plan, f.call), "device", "recorded:");
            expect_invalid(run_forward(device, f.call), "device", "recorded:");
        } else {
            expect_refusal(status, TILEWISE_UNSUPPORTED, "device");
            EXPECT_EQ(raw, nullptr);
        }
    }
    EXPECT_TRUE(all_nan(f.o));
}

TEST_F(Plans, OfCombineAndOfAttentionAreNotInterchangeable) {
    std::vector<float> parts_o = values(2 * 10, 5), parts_lse = values(2 * 5, 6), o = nans(10);
    tilewise_combination parts{};
    parts.struct_size = sizeof parts;
    parts.partial_o = f32(parts_o, {2, 1, 5, 1, 2});
    parts.partial_lse = f32(parts_lse, {2, 1, 1, 5});
    parts.o = f32(o, {1, 5, 1, 2});
    tilewise_plan* raw = nullptr;
    ASSERT_EQ(tilewise_plan_create_combine(cpu.get(), &parts, &raw), TILEWISE_OK) << tilewise_last_error();
    const PlanPtr combine(raw), forward = make_plan(cpu, TILEWISE_FORWARD, f.call);
    expect_invalid(tilewise_launch(combine.get(), &f.call, nullptr, 0, nullptr), "plan", "combine");
    expect_invalid(tilewise_launch_combine(forward.get(), &parts, nullptr, 0, nullptr), "plan", "combine");
    const Memory workspace(tilewise_plan_workspace_bytes(combine.get()));
    ASSERT_EQ(tilewise_launch_combine(combine.get(), &parts, workspace.data(), workspace.size(), nullptr), TILEWISE_OK)
        << tilewise_last_error();
    EXPECT_FALSE(std::isnan(o[0]));
}

}  // namespace
