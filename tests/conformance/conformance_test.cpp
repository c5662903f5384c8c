// Every kernel of the library against the oracle, one test a case: an instance and its exact answers are made once and serve all kernels.
// TILEWISE_TEST_DEVICE (cpu) is the device whose kernels are judged.
#include <gtest/gtest.h>

#include <cstdlib>

#include "conformance/verify.hpp"

namespace tilewise::conformance {
namespace {

std::string test_device() {
    const char* name = std::getenv("TILEWISE_TEST_DEVICE");
    return name != nullptr ? name : "cpu";
}

class Conformance : public testing::TestWithParam<std::string> {};

TEST_P(Conformance, EveryKernelIsRight) {
    Filter filter;
    filter.device = test_device();
    filter.case_name = "=" + GetParam();
    size_t judged = 0;
    for (const Result& result : verify(filter)) {
        if (result.status == ResultStatus::kPassed) ++judged;
        EXPECT_NE(result.status, ResultStatus::kFailed)
            << result.kernel << " on " << result.dtype << ": " << result.message;
    }
    EXPECT_GT(judged, 0u) << "no kernel served this case";
}

INSTANTIATE_TEST_SUITE_P(Cases, Conformance, testing::ValuesIn(selected_cases({})),
                         [](const auto& name) { return name.param; });

TEST(ConformanceList, HasEnoughCasesAndKernels) {
    EXPECT_GE(selected_cases({}).size(), 100u);
    Filter all;
    all.device = test_device();
    EXPECT_GE(selected_kernels(all).size(), 4u);
}

// A kernel that needs an instruction set which this machine lacks says so, and every kernel that runs here was judged on all its cases.
TEST(ConformanceList, RefusalsAreAboutTheMachineOrAnOption) {
    Filter filter;
    filter.case_name = "=split_in_2";
    for (const Result& result : verify(filter)) {
        if (result.status != ResultStatus::kRefused) continue;
        const bool about_machine = result.message.find("this CPU has") != std::string::npos;
        const bool about_splits = result.message.find("num_splits") != std::string::npos;
        EXPECT_TRUE(about_machine || about_splits) << result.kernel << ": " << result.message;
    }
}

}  // namespace
}  // namespace tilewise::conformance
