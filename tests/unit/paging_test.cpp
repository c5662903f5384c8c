// Where the keys of a paged sequence lie.
#include "math/paging.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <set>
#include <utility>

namespace tilewise {
namespace {

TEST(Paging, EveryPageSizeWalksItsTable) {
    const std::array<int32_t, 6> table{4, 0, 5, 2, 1, 3};
    for (int64_t page_size = 1; page_size <= 7; ++page_size)
        for (int64_t key = 0; key < 6 * page_size; ++key) {
            const KeyPlace place = paged_key(table.data(), 1, page_size, key);
            EXPECT_EQ(place.page, table[static_cast<size_t>(key / page_size)]);
            EXPECT_EQ(place.slot, key % page_size);
        }
}

TEST(Paging, DistinctPagesGiveDistinctPlaces) {
    const std::array<int32_t, 3> table{9, 7, 8};
    std::set<std::pair<int64_t, int64_t>> places;
    for (int64_t key = 0; key < 48; ++key) {
        const KeyPlace place = paged_key(table.data(), 1, 16, key);
        EXPECT_TRUE(places.emplace(place.page, place.slot).second);
    }
}

// A table of any stride: a column of a larger one, or one page for all (stride 0).
TEST(Paging, TableStride) {
    const std::array<int32_t, 6> table{1, -1, 2, -1, 3, -1};
    EXPECT_EQ(paged_key(table.data(), 2, 4, 9).page, 3);
    EXPECT_EQ(paged_key(table.data(), 0, 4, 9).page, 1);
    EXPECT_EQ(paged_key(table.data(), 0, 4, 9).slot, 1);
}

TEST(Paging, IdsThatAreNoPageBecomeTheLastOne) {
    for (const int64_t id : {0, 1, 8}) EXPECT_EQ(page_within(id, 8), id);
    for (const int64_t id : {9, 2147483647, -1, -2147483647 - 1}) EXPECT_EQ(page_within(id, 8), 8);
    EXPECT_EQ(page_within(-1, 0), 0);
    EXPECT_EQ(page_within(2147483647, 0x7fffffff), 2147483647);
}

TEST(Paging, PositionsPastThirtyTwoBits) {
    const int32_t page = 6;
    const int64_t page_size = int64_t{1} << 40;
    const KeyPlace place = paged_key(&page, 1, page_size, page_size - 1);
    EXPECT_EQ(place.page, 6);
    EXPECT_EQ(place.slot, page_size - 1);
}

}  // namespace
}  // namespace tilewise
