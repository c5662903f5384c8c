// Lengths of dense, ragged, partly used, left padded and cached sequences.
#include "math/sequence.hpp"

#include <gtest/gtest.h>

#include <array>
#include <initializer_list>

namespace tilewise {
namespace {

template <size_t N> IntVector vector_of(const std::array<int32_t, N>& values) { return {values.data(), 1}; }

TEST(Sequence, Dense) {
    SequenceTable table;
    table.seqlen_q = 5;
    table.seqlen_k = 9;
    const Sequence s = resolve_sequence(table, 3);
    EXPECT_EQ(s.q_batch, 3);
    EXPECT_EQ(s.q_row, 0);
    EXPECT_EQ(s.k_batch, 3);
    EXPECT_EQ(s.first_key, 0);
    EXPECT_EQ(s.seqlen_q, 5);
    EXPECT_EQ(s.seqlen_k, 9);
    EXPECT_EQ(s.allocated_q, 5);
    EXPECT_EQ(s.allocated_k, 9);
}

TEST(Sequence, RaggedWithAnEmptyOne) {
    const std::array<int32_t, 4> cu_q{0, 3, 3, 10}, cu_k{0, 0, 8, 12};
    SequenceTable table;
    table.cu_seqlens_q = vector_of(cu_q);
    table.cu_seqlens_k = vector_of(cu_k);
    const std::array<int32_t, 3> seqlen_q{3, 0, 7}, seqlen_k{0, 8, 4};
    for (size_t n = 0; n < 3; ++n) {
        const Sequence s = resolve_sequence(table, static_cast<int64_t>(n));
        EXPECT_EQ(s.q_batch, 0);
        EXPECT_EQ(s.k_batch, 0);
        EXPECT_EQ(s.q_row, cu_q[n]);
        EXPECT_EQ(s.k_row, cu_k[n]);
        EXPECT_EQ(s.first_key, cu_k[n]);
        EXPECT_EQ(s.seqlen_q, seqlen_q[n]);
        EXPECT_EQ(s.seqlen_k, seqlen_k[n]);
    }
}

TEST(Sequence, UsedLengthsShortenAndAllocatedOnesStay) {
    const std::array<int32_t, 3> cu_q{0, 6, 10}, used_q{4, 0}, used_k{7, 0};
    SequenceTable table;
    table.cu_seqlens_q = {cu_q.data(), 1};
    table.seqused_q = {used_q.data(), 1};
    table.seqused_k = {used_k.data(), 1};
    table.seqlen_k = 8;
    const Sequence first = resolve_sequence(table, 0);
    EXPECT_EQ(first.seqlen_q, 4);
    EXPECT_EQ(first.allocated_q, 6);
    EXPECT_EQ(first.seqlen_k, 7);
    EXPECT_EQ(first.allocated_k, 8);
    const Sequence second = resolve_sequence(table, 1);
    EXPECT_EQ(second.seqlen_q, 0);
    EXPECT_EQ(second.allocated_q, 4);
    EXPECT_EQ(second.seqlen_k, 0);
}

// seqused_k counts left padding; keys count from the first valid one.
TEST(Sequence, LeftPaddingMovesTheFirstKey) {
    const std::array<int32_t, 3> used_k{10, 3, 2}, leftpad{4, 0, 5};
    SequenceTable table;
    table.seqused_k = vector_of(used_k);
    table.leftpad_k = vector_of(leftpad);
    table.seqlen_q = 1;
    table.seqlen_k = 12;
    const Sequence padded = resolve_sequence(table, 0);
    EXPECT_EQ(padded.first_key, 4);
    EXPECT_EQ(padded.seqlen_k, 6);
    EXPECT_EQ(resolve_sequence(table, 1).seqlen_k, 3);
    EXPECT_EQ(resolve_sequence(table, 2).seqlen_k, 0) << "padding past the used keys leaves none";
}

TEST(Sequence, LeftPaddingOfARaggedKeyCountsFromItsOwnStart) {
    const std::array<int32_t, 3> cu_k{0, 5, 11};
    const std::array<int32_t, 2> leftpad{2, 1};
    SequenceTable table;
    table.cu_seqlens_k = vector_of(cu_k);
    table.leftpad_k = vector_of(leftpad);
    table.seqlen_q = 1;
    const Sequence s = resolve_sequence(table, 1);
    EXPECT_EQ(s.k_row, 5);
    EXPECT_EQ(s.first_key, 6);
    EXPECT_EQ(s.seqlen_k, 5);
}

TEST(Sequence, CacheRowsAreLookedUp) {
    const std::array<int32_t, 2> rows{7, 2};
    SequenceTable table;
    table.cache_batch_idx = vector_of(rows);
    table.seqlen_q = 1;
    table.seqlen_k = 16;
    EXPECT_EQ(resolve_sequence(table, 0).k_batch, 7);
    EXPECT_EQ(resolve_sequence(table, 1).k_batch, 2);
    EXPECT_EQ(resolve_sequence(table, 1).q_batch, 1);
}

// On a device nobody has read the lengths before the launch: whatever they say, keys stay inside the allocation.
TEST(Sequence, LengthsThatLieStayInsideTheAllocation) {
    const std::array<int32_t, 6> used_k{20, -3, 20, 9, 12, 2147483647}, leftpad{0, 0, 5, -4, 2147483647, -2147483647},
        used_q{9, -1, 4, 0, 1, 2};
    SequenceTable table;
    table.seqused_q = vector_of(used_q);
    table.seqused_k = vector_of(used_k);
    table.leftpad_k = vector_of(leftpad);
    table.seqlen_q = 4;
    table.seqlen_k = 12;
    for (int64_t n = 0; n < 6; ++n) {
        const Sequence s = resolve_sequence(table, n);
        EXPECT_GE(s.seqlen_q, 0);
        EXPECT_LE(s.seqlen_q, 4);
        EXPECT_GE(s.seqlen_k, 0);
        if (s.seqlen_k == 0) continue;
        EXPECT_GE(s.first_key, 0);
        EXPECT_LE(s.first_key + s.seqlen_k, 12);
    }
    EXPECT_EQ(resolve_sequence(table, 3).seqlen_k, 9) << "padding of less than nothing is none";
}

TEST(Sequence, CacheRowsThatLieStayInsideTheCache) {
    const std::array<int32_t, 5> index{0, 6, 7, -1, 2147483647};
    SequenceTable table;
    table.cache_batch_idx = vector_of(index);
    table.cache_rows = 7;
    const std::array<int64_t, 5> rows{0, 6, 6, 0, 6};
    for (size_t n = 0; n < 5; ++n) EXPECT_EQ(resolve_sequence(table, static_cast<int64_t>(n)).k_batch, rows[n]);
    table.cache_rows = 0;
    EXPECT_EQ(resolve_sequence(table, 3).k_batch, 0);
}

TEST(Sequence, StrideZeroRepeatsOneLength) {
    const int32_t used = 3;
    SequenceTable table;
    table.seqused_k = {&used, 0};
    table.seqlen_q = 1;
    table.seqlen_k = 8;
    for (const int64_t n : {0, 1, 100}) EXPECT_EQ(resolve_sequence(table, n).seqlen_k, 3);
}

}  // namespace
}  // namespace tilewise
