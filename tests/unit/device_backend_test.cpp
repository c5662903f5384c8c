// The interface of device kinds: where a launch's pointers lie is asked in one go and refused by name; the host as a device.
#include "core/device_backend.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "fake_kernels.hpp"
#include "sample_problems.hpp"

namespace tilewise {
namespace {

// A backend that has two GPUs; addresses up to 0x1000 are the host's, then up to 0x2000 those of cuda:0, then of cuda:1.
struct FakeGpus {
    static std::vector<int32_t>& questions() {
        static std::vector<int32_t> devices;
        return devices;
    }
    static Status locate(int32_t device, std::span<const void* const> pointers, std::span<PointerPlace> places) {
        questions().push_back(device);
        for (size_t i = 0; i < pointers.size(); ++i) {
            const auto address = reinterpret_cast<uintptr_t>(pointers[i]);
            const int32_t home = address < 0x2000 ? 0 : 1;
            places[i] = address < 0x1000 ? PointerPlace{PointerPlace::Kind::kHost, 0}
                        : home == device ? PointerPlace{PointerPlace::Kind::kUsable, home}
                                         : PointerPlace{PointerPlace::Kind::kOtherDevice, home};
        }
        return {};
    }
    static Status broken(int32_t, std::span<const void* const>, std::span<PointerPlace>) {
        return {StatusCode::kDeviceError, "the driver is gone"};
    }
    static DeviceBackend backend() {
        DeviceBackend gpus;
        gpus.memory.locate = locate;
        return gpus;
    }
};

void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

// A plan for cuda:<index> without steps, and pointers that lie on it.
struct Launch {
    Plan plan;
    Arguments arguments;

    explicit Launch(const Problem& problem, int32_t index = 1) {
        plan.problem = problem;
        plan.device = fake::recorded("h200");
        plan.device.index = index;
        plan.workspace_bytes = 64;
        for (size_t i = 0; i < kNumArgs; ++i)
            if (problem.has(static_cast<Arg>(i))) arguments.pointers.values[i] = at(index == 0 ? 0x1800 : 0x2800);
        arguments.workspace = at(index == 0 ? 0x1800 : 0x2800);
        FakeGpus::questions().clear();
    }
    std::string refusal() const {
        const Status status = check_places(plan, arguments, FakeGpus::backend());
        EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument);
        return status.message();
    }
};

TEST(Places, AreAskedOnceForAllPointers) {
    const Launch launch(samples::paged_decode());
    EXPECT_EQ(launch.refusal(), "");
    EXPECT_EQ(FakeGpus::questions(), std::vector<int32_t>{1});
}

TEST(Places, HostMemoryIsRefusedByName) {
    for (const Arg arg : {Arg::kQ, Arg::kO, Arg::kPageTable}) {
        Launch launch(samples::paged_forward(), 0);
        launch.arguments.pointers[arg] = at(0x800);
        const std::string message = launch.refusal();
        EXPECT_EQ(message.rfind(std::string(name_of(arg)) + ": the pointer is host memory; device cuda:0 needs", 0), 0u)
            << message;
    }
}

TEST(Places, AnotherDevicesMemoryIsRefusedByName) {
    Launch launch(samples::forward(), 0);
    launch.arguments.pointers[Arg::kV] = at(0x2800);
    EXPECT_EQ(launch.refusal(), "v: the pointer is memory of cuda:1; the plan was made for cuda:0");
}

TEST(Places, TheWorkspaceIsAPointerToo) {
    Launch launch(samples::forward());
    launch.arguments.workspace = at(0x800);
    EXPECT_EQ(launch.refusal().rfind("workspace: ", 0), 0u);
    launch.plan.workspace_bytes = 0;  // unused: it may be anything
    EXPECT_EQ(launch.refusal(), "");
}

TEST(Places, TensorsWithoutElementsMayLieAnywhere) {
    Problem problem = samples::forward();
    problem[Arg::kQ].shape[0] = 0;
    Launch launch(problem);
    launch.arguments.pointers[Arg::kQ] = at(0x800);
    EXPECT_EQ(launch.refusal(), "");
}

TEST(Places, ABackendThatFailsIsHeard) {
    const Launch launch(samples::forward());
    DeviceBackend gpus;
    gpus.memory.locate = FakeGpus::broken;
    EXPECT_EQ(check_places(launch.plan, launch.arguments, gpus).code(), StatusCode::kDeviceError);
    EXPECT_TRUE(check_places(launch.plan, launch.arguments, host_backend()).ok()) << "every address is the host's";
}

TEST(HostBackend, IsThisCpu) {
    const FoundDevices found = host_backend().find_devices();
    ASSERT_EQ(found.devices.size(), 1u);
    EXPECT_EQ(found.devices.front(), detect_cpu());
    EXPECT_EQ(device_backend(DeviceKind::kCpu), &host_backend());
}

}  // namespace
}  // namespace tilewise
