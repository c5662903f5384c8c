// Look-ups in a registry, and the JSON form of rows and plans.
#include "core/registry.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "fake_kernels.hpp"
#include "sample_problems.hpp"

namespace tilewise {
namespace {

TEST(Registry, FindsRowsByName) {
    const KernelRow* const row = fake::registry().find("fake_append");
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(row->op, Op::kAppend);
    EXPECT_EQ(fake::registry().find("fake"), nullptr);
    EXPECT_EQ(fake::registry().find(""), nullptr);
}

TEST(Registry, ElementTypeIsThatOfTheFirstInput) {
    EXPECT_EQ(element_type_of(samples::forward()), DType::kBF16);
    EXPECT_EQ(element_type_of(samples::append()), DType::kBF16);
    EXPECT_EQ(element_type_of(samples::combine()), DType::kF32);
    EXPECT_EQ(element_type_of(Problem{}), DType::kNone);
}

TEST(Registry, RowsOfThisBuildAreComplete) {
    std::set<std::string> names;
    for (const KernelRow& row : default_registry().rows()) {
        EXPECT_TRUE(names.insert(row.name).second) << row.name << " is there twice";
        EXPECT_NE(row.launch, nullptr) << row.name;
        EXPECT_FALSE(row.dtypes.empty()) << row.name;
        EXPECT_GT(row.max_head_dim, 0) << row.name;
        EXPECT_GT(row.max_head_dim_v, 0) << row.name;
        EXPECT_FALSE(row.features.empty()) << row.name;
    }
}

TEST(Registry, RowAsJson) {
    const auto json = nlohmann::json::parse(to_json(*fake::registry().find("fake_forward_avx2")));
    EXPECT_EQ(json["name"], "fake_forward_avx2");
    EXPECT_EQ(json["device"], "cpu");
    EXPECT_EQ(json["op"], "forward");
    EXPECT_EQ(json["dtypes"], (nlohmann::json{"f32", "f16", "bf16"}));
    EXPECT_EQ(json["max_head_dim_v"], 512);
    EXPECT_EQ(json["isa"], "avx2");
}

TEST(Registry, PlanAsJson) {
    Plan plan;
    ASSERT_TRUE(make_plan(samples::paged_decode(), fake::recorded("cpu-avx512bf16"), fake::registry(), &plan).ok());
    const auto json = nlohmann::json::parse(to_json(plan));
    EXPECT_EQ(json["op"], "decode");
    EXPECT_EQ(json["steps"].size(), 2u);
    EXPECT_EQ(json["steps"][0]["kernel"], "fake_append");
    EXPECT_EQ(json["steps"][1]["num_splits"], 2);
    EXPECT_EQ(json["workspace_bytes"], plan.workspace_bytes);
    EXPECT_EQ(json["shared_workspace"].size(), 2u);
    EXPECT_EQ(json["refused"].size(), plan.refused.size());
    EXPECT_EQ(json["problem"]["tensors"]["q"]["shape"], (nlohmann::json{3, 5, 6, 8}));

    ASSERT_TRUE(make_plan(samples::combine(), fake::recorded("cpu-avx2"), fake::registry(), &plan).ok());
    EXPECT_FALSE(nlohmann::json::parse(to_json(plan))["problem"].contains("mask"));
}

}  // namespace
}  // namespace tilewise
