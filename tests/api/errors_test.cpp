// Wrong calls of the C interface: each is refused with a message that begins with the argument's name, and nothing is written.
#include <cstddef>
#include <cstring>
#include <thread>

#include "support.hpp"

namespace {

using namespace api_test;

class Errors : public testing::Test {
protected:
    // The one-call forward of f, which is expected to be refused without a trace.
    void expect_refused(const std::string& argument, const std::string& part = "") {
        expect_invalid(tilewise_forward(cpu.get(), &f.call, nullptr, 0, nullptr), argument, part);
        EXPECT_TRUE(all_nan(f.o));
        EXPECT_TRUE(all_nan(f.lse));
    }

    DevicePtr cpu = open("cpu");
    Forward f;
};

TEST_F(Errors, NullDevice) {
    expect_invalid(tilewise_forward(nullptr, &f.call, nullptr, 0, nullptr), "device", "null");
    expect_invalid(tilewise_backward(nullptr, &f.call, nullptr, 0, nullptr), "device", "null");
    expect_invalid(tilewise_decode(nullptr, &f.call, nullptr, 0, nullptr), "device", "null");
    expect_invalid(tilewise_append(nullptr, &f.call, nullptr, 0, nullptr), "device", "null");
    tilewise_combination parts{};
    expect_invalid(tilewise_combine(nullptr, &parts, nullptr, 0, nullptr), "device", "null");
    tilewise_plan* plan = nullptr;
    expect_invalid(tilewise_plan_create(nullptr, TILEWISE_FORWARD, &f.call, &plan), "device", "null");
    size_t bytes = 1;
    expect_invalid(tilewise_workspace_bytes(nullptr, TILEWISE_FORWARD, &f.call, &bytes), "device", "null");
    EXPECT_EQ(bytes, 0u);
    EXPECT_STREQ(tilewise_device_json(nullptr), "");
    tilewise_device_close(nullptr);
}

TEST_F(Errors, NullStructsAndOutputs) {
    expect_invalid(tilewise_forward(cpu.get(), nullptr, nullptr, 0, nullptr), "tilewise_attention", "null");
    expect_invalid(tilewise_combine(cpu.get(), nullptr, nullptr, 0, nullptr), "tilewise_combination", "null");
    expect_invalid(tilewise_plan_create(cpu.get(), TILEWISE_FORWARD, &f.call, nullptr), "plan", "null");
    expect_invalid(tilewise_plan_create_combine(cpu.get(), nullptr, nullptr), "plan", "null");
    expect_invalid(tilewise_workspace_bytes(cpu.get(), TILEWISE_FORWARD, &f.call, nullptr), "bytes", "null");
    expect_invalid(tilewise_device_open("cpu", nullptr), "device", "null");
    tilewise_device* device = nullptr;
    expect_invalid(tilewise_device_open(nullptr, &device), "name", "null");
    auto* plan = reinterpret_cast<tilewise_plan*>(&device);
    expect_invalid(tilewise_plan_create(cpu.get(), TILEWISE_FORWARD, nullptr, &plan), "tilewise_attention", "null");
    EXPECT_EQ(plan, nullptr);
}

TEST_F(Errors, NullPlan) {
    expect_invalid(tilewise_launch(nullptr, &f.call, nullptr, 0, nullptr), "plan", "null");
    expect_invalid(tilewise_launch_combine(nullptr, nullptr, nullptr, 0, nullptr), "plan", "null");
    EXPECT_EQ(tilewise_plan_workspace_bytes(nullptr), 0u);
    EXPECT_STREQ(tilewise_plan_kernel(nullptr), "");
    EXPECT_STREQ(tilewise_plan_text(nullptr), "");
    EXPECT_STREQ(tilewise_plan_json(nullptr), "");
    tilewise_plan_destroy(nullptr);
}

TEST_F(Errors, StructSizeOfAnotherHeader) {
    f.call.struct_size = sizeof f.call + 8;
    expect_refused("struct_size", "newer");
    for (const size_t size : {size_t{0}, size_t{1}, offsetof(tilewise_attention, lse), sizeof f.call - 1}) {
        f.call.struct_size = size;
        expect_refused("struct_size", std::to_string(size));
    }
    tilewise_combination parts{};
    expect_invalid(tilewise_combine(cpu.get(), &parts, nullptr, 0, nullptr), "struct_size", "tilewise_combination");
}

// A caller of an older header allocates a shorter struct; what lies behind it is not read (an address sanitizer sees it).
TEST_F(Errors, ShorterStructIsServed) {
    for (const size_t size : {offsetof(tilewise_attention, lengths), offsetof(tilewise_attention, score),
                              offsetof(tilewise_attention, options)}) {
        std::fill(f.o.begin(), f.o.end(), std::numeric_limits<float>::quiet_NaN());
        f.call.struct_size = size;
        const Memory exact(size);
        std::memcpy(exact.data(), &f.call, size);
        const auto* call = static_cast<const tilewise_attention*>(exact.data());
        size_t bytes = 0;
        ASSERT_EQ(tilewise_workspace_bytes(cpu.get(), TILEWISE_FORWARD, call, &bytes), TILEWISE_OK);
        const Memory workspace(bytes);
        ASSERT_EQ(tilewise_forward(cpu.get(), call, workspace.data(), bytes, nullptr), TILEWISE_OK)
            << tilewise_last_error();
        expect_near(f.o, plain_attention(f, false));
    }
}

TEST_F(Errors, UnknownFlags) {
    f.call.mask.flags = 8;
    expect_refused("mask.flags", "0x8");
    f.call.mask.flags = 0;
    f.call.score.flags = 2;
    expect_refused("score.flags", "0x2");
    f.call.score.flags = 0;
    f.call.options.flags = 0x80000000u;
    expect_refused("options.flags", "0x80000000");
}

TEST_F(Errors, UnknownEnumerators) {
    f.call.q.dtype = 9;
    expect_refused("q", "dtype 9");
    f.call.q.dtype = -1;
    expect_refused("q", "dtype -1");
    f.call.q.dtype = TILEWISE_F32;
    for (const int32_t rank : {-1, 6}) {
        f.call.v.rank = rank;
        expect_refused("v", "rank " + std::to_string(rank));
    }
    f.call.v.rank = 4;
    tilewise_plan* plan = nullptr;
    for (const int op : {5, 7})
        expect_invalid(tilewise_plan_create(cpu.get(), static_cast<tilewise_op>(op), &f.call, &plan), "op",
                       std::to_string(op));
    expect_invalid(tilewise_plan_create(cpu.get(), TILEWISE_COMBINE, &f.call, &plan), "op", "combin");
}

TEST_F(Errors, TensorWithoutDtype) {
    f.call.lse.dtype = TILEWISE_NONE;
    expect_refused("lse", "data is set");
    f.call.lse.data = nullptr;
    expect_refused("lse", "shape is set");
}

TEST_F(Errors, ValuesWithoutTheirFlag) {
    f.call.mask.window_left = 3;
    expect_refused("window_left", "3");
    f.call.mask.window_left = 0;
    f.call.mask.window_right = -1;
    expect_refused("window_right", "-1");
    f.call.mask.window_right = 0;
    f.call.score.softmax_scale = 0.5f;
    expect_refused("softmax_scale", "0.5");
    f.call.score.softmax_scale = std::numeric_limits<float>::quiet_NaN();
    expect_refused("softmax_scale", "nan");
}

TEST_F(Errors, WindowsOutOfRange) {
    f.call.mask.flags = TILEWISE_MASK_WINDOW | TILEWISE_MASK_CAUSAL;
    f.call.mask.window_right = 2;
    expect_refused("window_right", "2");
    f.call.mask.flags = TILEWISE_MASK_WINDOW;
    f.call.mask.window_left = -2;
    expect_refused("window_left", "-2");
    f.call.mask.window_left = std::numeric_limits<int64_t>::min();
    expect_refused("window_left", "-9223372036854775808");
    f.call.mask.flags = 0;
    f.call.mask.window_left = f.call.mask.window_right = 0;
    f.call.mask.prefix = std::numeric_limits<int64_t>::min();
    expect_refused("prefix", "-9223372036854775808");
}

// A side that reaches past every key is no side, however large the number is.
TEST_F(Errors, HugeWindowIsUnlimited) {
    f.call.mask.flags = TILEWISE_MASK_WINDOW;
    f.call.mask.window_left = std::numeric_limits<int64_t>::max();
    f.call.mask.window_right = int64_t{1} << 31;
    ASSERT_EQ(run_forward(cpu, f.call), TILEWISE_OK) << tilewise_last_error();
    expect_near(f.o, plain_attention(f, false));
}

TEST_F(Errors, IllFormedProblemNamesTheArgument) {
    f.call.k.shape[3] = 7;
    expect_refused("k");
    f.call.k.shape[3] = 8;
    f.call.o = tilewise_tensor{};
    expect_invalid(tilewise_forward(cpu.get(), &f.call, nullptr, 0, nullptr), "o");
}

TEST_F(Errors, NullAndMisalignedData) {
    size_t bytes = 0;
    ASSERT_EQ(tilewise_workspace_bytes(cpu.get(), TILEWISE_FORWARD, &f.call, &bytes), TILEWISE_OK);
    const Memory workspace(bytes);
    const auto forward = [&] { return tilewise_forward(cpu.get(), &f.call, workspace.data(), bytes, nullptr); };
    f.call.k.data = nullptr;
    expect_invalid(forward(), "k");
    f.call.k.data = reinterpret_cast<unsigned char*>(f.k.data()) + 1;
    expect_invalid(forward(), "k");
    EXPECT_TRUE(all_nan(f.o));
}

TEST_F(Errors, WorkspaceTooSmallOrMisaligned) {
    f.call.options.kernel = nullptr;
    size_t bytes = 0;
    ASSERT_EQ(tilewise_workspace_bytes(cpu.get(), TILEWISE_FORWARD, &f.call, &bytes), TILEWISE_OK);
    if (bytes == 0) return;
    const Memory workspace(bytes + 64);
    expect_invalid(tilewise_forward(cpu.get(), &f.call, nullptr, bytes, nullptr), "workspace");
    expect_invalid(tilewise_forward(cpu.get(), &f.call, workspace.data(), bytes - 1, nullptr), "workspace");
    auto* misaligned = static_cast<unsigned char*>(workspace.data()) + 4;
    expect_invalid(tilewise_forward(cpu.get(), &f.call, misaligned, bytes, nullptr), "workspace");
    EXPECT_TRUE(all_nan(f.o));
}

TEST_F(Errors, LastErrorBelongsToTheThread) {
    expect_invalid(tilewise_forward(nullptr, &f.call, nullptr, 0, nullptr), "device");
    const std::string mine = tilewise_last_error();
    std::thread other([&] {
        EXPECT_STREQ(tilewise_last_error(), "");
        expect_invalid(tilewise_forward(cpu.get(), nullptr, nullptr, 0, nullptr), "tilewise_attention");
    });
    other.join();
    EXPECT_EQ(tilewise_last_error(), mine);
    ASSERT_EQ(run_forward(cpu, f.call), TILEWISE_OK) << tilewise_last_error();
    EXPECT_EQ(tilewise_last_error(), mine) << "a call that succeeds leaves the last error";
}

TEST(Names, OfStatuses) {
    EXPECT_STREQ(tilewise_status_name(TILEWISE_OK), "ok");
    EXPECT_STREQ(tilewise_status_name(TILEWISE_INVALID_ARGUMENT), "invalid argument");
    EXPECT_STREQ(tilewise_status_name(static_cast<tilewise_status>(7)), "unknown status");
}

TEST(Names, OfTheVersion) {
    const std::string expected = std::to_string(TILEWISE_VERSION_MAJOR) + "." + std::to_string(TILEWISE_VERSION_MINOR) +
                                 "." + std::to_string(TILEWISE_VERSION_PATCH);
    EXPECT_EQ(tilewise_version(), expected);
}

}  // namespace
