// The two environment variables. The library reads them once, so every case is a process of its own (a death test that ends well).
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "support.hpp"

namespace {

using namespace api_test;
using nlohmann::json;

// Ends the process: 0 if what the body says holds.
template <class Body> [[noreturn]] void in_child(const char* variable, const char* value, Body&& body) {
    setenv(variable, value, 1);
    std::_Exit(body() ? 0 : 1);
}

std::string kernel_of(tilewise_op op, const tilewise_attention& call, const char* device = "cpu") {
    return tilewise_plan_kernel(make_plan(open(device), op, call).get());
}

bool is_refused(const std::string& part) {
    Forward f;
    const bool refused = run_forward(open("cpu"), f.call) == TILEWISE_INVALID_ARGUMENT;
    return refused && std::string(tilewise_last_error()).find(part) != std::string::npos;
}

TEST(EnvironmentDeathTest, ForcesAKernel) {
    const auto body = [] {
        Forward f;
        return kernel_of(TILEWISE_FORWARD, f.call) == "cpu_reference_forward" &&
               kernel_of(TILEWISE_FORWARD, f.call, "recorded:cpu-avx2") == "cpu_reference_forward";
    };
    EXPECT_EXIT(in_child("TILEWISE_FORCE_KERNEL", "cpu_reference_forward", body), testing::ExitedWithCode(0), "");
}

TEST(EnvironmentDeathTest, LeavesOtherOperationsAlone) {
    const auto body = [] {
        Forward f;
        return kernel_of(TILEWISE_FORWARD, f.call).find("backward") == std::string::npos;
    };
    EXPECT_EXIT(in_child("TILEWISE_FORCE_KERNEL", "cpu_reference_backward", body), testing::ExitedWithCode(0), "");
}

TEST(EnvironmentDeathTest, RefusesAnUnknownKernel) {
    const auto body = [] { return is_refused("TILEWISE_FORCE_KERNEL: \"no_such_row\""); };
    EXPECT_EXIT(in_child("TILEWISE_FORCE_KERNEL", "no_such_row", body), testing::ExitedWithCode(0), "");
}

TEST(EnvironmentDeathTest, SetsTheThreads) {
    const auto body = [] {
        Forward f;
        const PlanPtr plan = make_plan(open("cpu"), TILEWISE_FORWARD, f.call);
        const json object = json::parse(tilewise_plan_json(plan.get()));
        f.call.options.num_threads = 2;
        const PlanPtr own = make_plan(open("cpu"), TILEWISE_FORWARD, f.call);
        const json own_object = json::parse(tilewise_plan_json(own.get()));
        return object.at("problem").at("options").at("num_threads") == 3 &&
               own_object.at("problem").at("options").at("num_threads") == 2;
    };
    EXPECT_EXIT(in_child("TILEWISE_NUM_THREADS", "3", body), testing::ExitedWithCode(0), "");
}

TEST(EnvironmentDeathTest, RefusesWhatIsNoNumberOfThreads) {
    for (const char* wrong : {"0", "-1", "two", "3x", "99999999999"}) {
        const auto body = [&] { return is_refused("TILEWISE_NUM_THREADS: \"" + std::string(wrong) + "\""); };
        EXPECT_EXIT(in_child("TILEWISE_NUM_THREADS", wrong, body), testing::ExitedWithCode(0), "") << wrong;
    }
}

TEST(EnvironmentDeathTest, EmptyIsNotSet) {
    const auto body = [] {
        Forward f;
        return run_forward(open("cpu"), f.call) == TILEWISE_OK;
    };
    EXPECT_EXIT(in_child("TILEWISE_NUM_THREADS", "", body), testing::ExitedWithCode(0), "");
}

}  // namespace
