// Several threads at once: one plan, the shared plan cache, devices, errors. Meant to be clean under a thread sanitizer.
#include <functional>
#include <thread>

#include "support.hpp"

namespace {

using namespace api_test;

void in_threads(int count, const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) threads.emplace_back(body, i);
    for (std::thread& thread : threads) thread.join();
}

TEST(Threads, ShareOnePlan) {
    const DevicePtr cpu = open("cpu");
    Forward model;
    const PlanPtr plan = make_plan(cpu, TILEWISE_FORWARD, model.call);
    in_threads(4, [&](int thread) {
        for (uint32_t round = 0; round < 8; ++round) {
            Forward mine({}, 100 * static_cast<uint32_t>(thread) + round);
            const Memory workspace(tilewise_plan_workspace_bytes(plan.get()));
            ASSERT_EQ(tilewise_launch(plan.get(), &mine.call, workspace.data(), workspace.size(), nullptr), TILEWISE_OK)
                << tilewise_last_error();
            expect_near(mine.o, plain_attention(mine, false));
            EXPECT_NE(std::string(tilewise_plan_text(plan.get())), "");
            EXPECT_NE(std::string(tilewise_plan_json(plan.get())), "");
        }
    });
}

TEST(Threads, PlanThroughOneCache) {
    const DevicePtr cpu = open("cpu");
    in_threads(4, [&](int thread) {
        for (int64_t round = 0; round < 24; ++round) {
            // Threads meet on the same problems in different orders.
            const int64_t sq = 1 + (round * (thread + 1)) % 7;
            Forward mine(Shape{1, sq, 9, 4, 2, 8, 6}, static_cast<uint32_t>(thread));
            mine.call.options.num_threads = 1;
            ASSERT_EQ(run_forward(cpu, mine.call), TILEWISE_OK) << tilewise_last_error();
            expect_near(mine.o, plain_attention(mine, false));
        }
    });
}

TEST(Threads, OpenDevicesAndFailOnTheirOwn) {
    in_threads(4, [&](int thread) {
        for (int round = 0; round < 16; ++round) {
            const DevicePtr device = open(thread % 2 == 0 ? "cpu" : "recorded:h200");
            ASSERT_NE(device, nullptr);
            tilewise_device* none = nullptr;
            const std::string name = "device " + std::to_string(thread);
            expect_invalid(tilewise_device_open(name.c_str(), &none), "device", name);
        }
    });
}

}  // namespace
