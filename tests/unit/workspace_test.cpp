// The layout of named blocks: aligned, disjoint, behind their base, and as large as it says.
#include "core/workspace.hpp"

#include <gtest/gtest.h>

namespace tilewise {
namespace {

TEST(Workspace, BlocksAreAlignedAndDisjoint) {
    WorkspaceLayout layout(100);
    EXPECT_EQ(layout.bytes(), 100);
    EXPECT_EQ(layout.add("a", 1), 128);
    EXPECT_EQ(layout.add("b", 64), 192);
    EXPECT_EQ(layout.add("c", 65), 256);
    EXPECT_EQ(layout.add("d", 4), 384);
    EXPECT_EQ(layout.bytes(), 388);
}

TEST(Workspace, AnEmptyBlockHasAPlace) {
    WorkspaceLayout layout;
    EXPECT_EQ(layout.add("nothing", 0), 0);
    EXPECT_EQ(layout.add("something", 8), 0);
    EXPECT_EQ(layout.bytes(), 8);
}

TEST(Workspace, SizesPastThirtyTwoBits) {
    WorkspaceLayout layout;
    const int64_t large = (int64_t{1} << 40) + 1;
    layout.add("large", large);
    EXPECT_EQ(layout.add("next", 8), (int64_t{1} << 40) + kWorkspaceAlignment);
}

TEST(Workspace, AStepFindsItsBlocksByName) {
    WorkspaceLayout layout(64);
    layout.add("partial_o", 256);
    layout.add("partial_lse", 16);
    Step step;
    step.workspace = layout.take_blocks();
    ASSERT_EQ(step.workspace.size(), 2u);
    EXPECT_EQ(step.block("partial_o"), 64);
    EXPECT_EQ(step.block("partial_lse"), 320);
    EXPECT_EQ(step.workspace[1].bytes, 16);
}

}  // namespace
}  // namespace tilewise
