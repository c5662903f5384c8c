// The cache behind the one-call forms: same problem and device, same plan; the least recently used one leaves.
#include "api/plan_cache.hpp"

#include <gtest/gtest.h>

namespace tilewise::api {
namespace {

Problem forward_of(int64_t rows) {
    Problem problem;
    for (const Arg arg : {Arg::kQ, Arg::kK, Arg::kV, Arg::kO}) problem[arg] = contiguous(DType::kF32, {1, rows, 2, 8});
    return problem;
}

class PlanCacheTest : public testing::Test {
protected:
    std::shared_ptr<const Plan> plan_for(int64_t rows, const char* name = "cpu") {
        const KnownDevice* device = nullptr;
        EXPECT_TRUE(find_device(name, &device).ok());
        std::shared_ptr<const Plan> plan;
        const Status status = cache.plan_for(*device, forward_of(rows), &plan);
        EXPECT_TRUE(status.ok()) << status.message();
        return plan;
    }

    PlanCache cache{2};
};

TEST_F(PlanCacheTest, KeepsPlansByProblemAndDevice) {
    const auto plan = plan_for(3);
    EXPECT_EQ(plan_for(3), plan);
    EXPECT_EQ(plan->problem, forward_of(3));
    EXPECT_EQ(cache.size(), 1u);
    EXPECT_NE(plan_for(3, "recorded:cpu-avx2"), plan);
    EXPECT_EQ(plan_for(3), plan);
    EXPECT_EQ(cache.size(), 2u);
}

TEST_F(PlanCacheTest, DropsTheLeastRecentlyUsed) {
    const auto one = plan_for(1), two = plan_for(2);
    EXPECT_EQ(plan_for(1), one);
    const auto three = plan_for(3);
    EXPECT_EQ(cache.size(), 2u);
    EXPECT_EQ(plan_for(1), one);
    EXPECT_EQ(plan_for(3), three);
    EXPECT_NE(plan_for(2), two);
    EXPECT_EQ(two->problem, forward_of(2)) << "a dropped plan lives as long as its holder";
}

TEST_F(PlanCacheTest, KeepsNoFailures) {
    Problem problem = forward_of(3);
    problem[Arg::kK].shape[3] = 7;
    std::shared_ptr<const Plan> plan;
    EXPECT_FALSE(cache.plan_for(cpu_device(), problem, &plan).ok());
    EXPECT_EQ(plan, nullptr);
    EXPECT_EQ(cache.size(), 0u);
}

}  // namespace
}  // namespace tilewise::api
