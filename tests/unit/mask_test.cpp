// The interval mask against its definition, key by key, for every small size: what a row sees, what a tile visits, where a tile
// needs no masking, and which rows a key tile has to visit.
#include "math/mask.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

namespace tilewise {
namespace {

using KeySet = uint32_t;  // bit j: key j
constexpr int kMaxSize = 9;

struct Case {
    MaskSpec spec;
    int32_t seqlen_q = 0;
    int32_t seqlen_k = 0;
};

std::string describe(const Case& c, const std::string& what) {
    return what + ": seqlen_q " + std::to_string(c.seqlen_q) + " seqlen_k " + std::to_string(c.seqlen_k) + " left " +
           std::to_string(c.spec.window_left) + " right " + std::to_string(c.spec.window_right) + " chunk " +
           std::to_string(c.spec.chunk) + " block " + std::to_string(c.spec.block) + " prefix " +
           std::to_string(c.spec.prefix) + (c.spec.top_left ? " top_left" : " bottom_right");
}

// Every condition as the contract words it, with nothing shared with the code under test.
bool is_visible(const Case& c, int64_t row, int64_t key) {
    const MaskSpec& spec = c.spec;
    if (key < spec.prefix) return true;
    const int64_t position = row + (spec.top_left ? 0 : c.seqlen_k - c.seqlen_q);
    if (spec.window_left >= 0 && key < position - spec.window_left) return false;
    if (spec.window_right >= 0 && key > position + spec.window_right) return false;
    if (spec.chunk > 0) {
        int64_t chunk_begin = 0;  // walk to the chunk that holds the position, which can lie before the first key
        while (chunk_begin > position) chunk_begin -= spec.chunk;
        while (chunk_begin + spec.chunk <= position) chunk_begin += spec.chunk;
        if (key < chunk_begin || key >= chunk_begin + spec.chunk) return false;
    }
    if (spec.block > 0 && key > position) {
        int64_t block_end = position + 1;
        while (block_end % spec.block != 0) ++block_end;
        if (key >= block_end) return false;
    }
    return true;
}

KeySet set_of(Interval x) {
    KeySet set = 0;
    for (int32_t j = x.begin; j < x.end; ++j) set |= KeySet{1} << j;
    return set;
}
bool is_inside(Interval x, int32_t seqlen_k) { return 0 <= x.begin && x.begin <= x.end && x.end <= seqlen_k; }
bool has_all(KeySet outer, KeySet inner) { return (inner & ~outer) == 0; }

// First disagreement in words; empty: none.
std::string check_rows(const Case& c, const IntervalMask& mask, KeySet* rows) {
    for (int32_t i = 0; i < c.seqlen_q; ++i) {
        rows[i] = 0;
        for (int32_t j = 0; j < c.seqlen_k; ++j)
            if (is_visible(c, i, j)) rows[i] |= KeySet{1} << j;
        const Interval keys = row_interval(mask, i);
        if (!is_inside(keys, c.seqlen_k) || set_of(keys) != rows[i])
            return describe(c, "row_interval of row " + std::to_string(i));
    }
    return {};
}

std::string check_row_ranges(const Case& c, const IntervalMask& mask, const KeySet* rows) {
    for (int32_t begin = 0; begin < c.seqlen_q; ++begin) {
        KeySet any = 0, all = ~KeySet{0};
        for (int32_t end = begin + 1; end <= c.seqlen_q; ++end) {
            any |= rows[end - 1];
            all &= rows[end - 1];
            const Interval visit = visit_range(mask, begin, end);
            const Interval interior = interior_range(mask, begin, end);
            const std::string where = " of rows " + std::to_string(begin) + ".." + std::to_string(end);
            if (!is_inside(visit, c.seqlen_k) || !has_all(set_of(visit), any))
                return describe(c, "visit_range" + where);
            // A visit range is as narrow as an interval can be unless its first or last row sees nothing.
            const bool has_tight_ends = rows[begin] != 0 && rows[end - 1] != 0;
            const bool ends_used =
                visit.begin == visit.end || ((any >> visit.begin & 1) && (any >> (visit.end - 1) & 1));
            if (has_tight_ends && !ends_used) return describe(c, "visit_range too wide" + where);
            if (!is_inside(interior, c.seqlen_k) || set_of(interior) != all)
                return describe(c, "interior_range" + where);
        }
    }
    return {};
}

std::string check_key_ranges(const Case& c, const IntervalMask& mask, const KeySet* rows) {
    for (int32_t begin = 0; begin < c.seqlen_k; ++begin)
        for (int32_t end = begin + 1; end <= c.seqlen_k; ++end) {
            const Interval keys{begin, end};
            const Interval visiting = visiting_rows(mask, c.seqlen_q, keys);
            if (!is_inside(visiting, c.seqlen_q)) return describe(c, "visiting_rows outside");
            for (int32_t i = 0; i < c.seqlen_q; ++i) {
                const bool sees = (rows[i] & set_of(keys)) != 0;
                const bool visited = visiting.begin <= i && i < visiting.end;
                const bool may_be_visited = sees || rows[i] == 0;  // a row without keys does no harm
                if ((sees && !visited) || (visited && !may_be_visited))
                    return describe(c, "visiting_rows of keys " + std::to_string(begin) + ".." + std::to_string(end));
            }
        }
    return {};
}

std::string check(const Case& c) {
    const IntervalMask mask = resolve_mask(c.spec, c.seqlen_q, c.seqlen_k);
    KeySet rows[kMaxSize + 1] = {};
    std::string failure = check_rows(c, mask, rows);
    if (failure.empty()) failure = check_row_ranges(c, mask, rows);
    if (failure.empty()) failure = check_key_ranges(c, mask, rows);
    return failure;
}

// Runs `spec` for every pair of lengths and both diagonals; false ends the caller's loops at the first failure.
bool holds_for_all_lengths(MaskSpec spec) {
    for (const bool top_left : {false, true})
        for (int32_t seqlen_q = 0; seqlen_q <= kMaxSize; ++seqlen_q)
            for (int32_t seqlen_k = 0; seqlen_k <= kMaxSize; ++seqlen_k) {
                spec.top_left = top_left;
                const std::string failure = check({spec, seqlen_q, seqlen_k});
                if (failure.empty()) continue;
                ADD_FAILURE() << failure;
                return false;
            }
    return true;
}

TEST(Mask, EveryWindowOfEverySmallSize) {
    for (int32_t left = -1; left <= kMaxSize + 1; ++left)
        for (int32_t right = -1; right <= kMaxSize + 1; ++right) {
            MaskSpec spec;
            spec.window_left = left;
            spec.window_right = right;
            if (!holds_for_all_lengths(spec)) return;
        }
}

TEST(Mask, EveryChunkWithAndWithoutWindow) {
    for (int32_t chunk = 1; chunk <= kMaxSize + 1; ++chunk)
        for (int32_t left = -1; left <= 4; ++left)
            for (int32_t right = -1; right <= 4; ++right) {
                MaskSpec spec;
                spec.chunk = chunk;
                spec.window_left = left;
                spec.window_right = right;
                if (!holds_for_all_lengths(spec)) return;
            }
}

TEST(Mask, EveryBlockWithAndWithoutWindowAndChunk) {
    for (int32_t block = 1; block <= kMaxSize + 1; ++block)
        for (int32_t left = -1; left <= 4; ++left)
            for (int32_t right = -1; right <= 4; ++right)
                for (const int32_t chunk : {0, 4}) {
                    MaskSpec spec;
                    spec.block = block;
                    spec.window_left = left;
                    spec.window_right = right;
                    spec.chunk = chunk;
                    if (!holds_for_all_lengths(spec)) return;
                }
}

TEST(Mask, EveryPrefixWithABlock) {
    for (int32_t prefix = 1; prefix <= kMaxSize + 1; ++prefix)
        for (int32_t block = 1; block <= kMaxSize + 1; ++block) {
            MaskSpec spec;
            spec.prefix = prefix;
            spec.block = block;
            if (!holds_for_all_lengths(spec)) return;
        }
}

TEST(Mask, EveryPrefixWithARightSide) {
    for (int32_t prefix = 1; prefix <= kMaxSize + 1; ++prefix)
        for (int32_t right = 0; right <= kMaxSize + 1; ++right) {
            MaskSpec spec;
            spec.prefix = prefix;
            spec.window_right = right;
            if (!holds_for_all_lengths(spec)) return;
        }
}

// Length of row `row`'s interval in 64-bit arithmetic.
int64_t visible_count(const Case& c, int64_t row) {
    const MaskSpec& spec = c.spec;
    const int64_t position = row + (spec.top_left ? 0 : int64_t{c.seqlen_k} - c.seqlen_q);
    int64_t begin = 0, end = c.seqlen_k;
    if (spec.window_left >= 0) begin = std::max(begin, position - spec.window_left);
    if (spec.window_right >= 0) end = std::min(end, position + spec.window_right + 1);
    if (spec.chunk > 0) {
        const int64_t chunk = spec.chunk;
        const int64_t chunk_begin = position - ((position % chunk) + chunk) % chunk;
        begin = std::max(begin, chunk_begin);
        end = std::min(end, chunk_begin + chunk);
    }
    if (spec.block > 0)
        end = std::min(end, position - ((position % spec.block) + spec.block) % spec.block + spec.block);
    return std::max<int64_t>(end - begin, 0);
}

// No sum may leave 32 bits at the longest sequence, the widest window and the largest chunk (the sanitizer watches).
TEST(Mask, LongestSequencesAndWidestWindows) {
    constexpr int32_t kWidest = std::numeric_limits<int32_t>::max();
    const auto check_ends = [](const Case& c) {
        const IntervalMask mask = resolve_mask(c.spec, c.seqlen_q, c.seqlen_k);
        for (const int32_t row : {0, c.seqlen_q - 1}) {
            const Interval keys = row_interval(mask, row);
            EXPECT_EQ(keys.end - keys.begin, visible_count(c, row)) << describe(c, "row " + std::to_string(row));
        }
    };
    for (const int32_t seqlen_q : {1, kMaxSeqlen})
        for (const int32_t seqlen_k : {1, kMaxSeqlen})
            for (const int32_t left : {-1, 0, kMaxSeqlen, kWidest})
                for (const int32_t right : {-1, 0, kMaxSeqlen, kWidest})
                    for (const int32_t chunk : {0, 1, 1000, kMaxSeqlen, kWidest})
                        for (const int32_t block : {0, 1000, kWidest})
                            for (const bool top_left : {false, true})
                                check_ends({{left, right, chunk, block, 0, top_left}, seqlen_q, seqlen_k});
}

TEST(Mask, IntersectionOfIntervals) {
    EXPECT_EQ(intersect({2, 7}, {4, 9}), (Interval{4, 7}));
    EXPECT_EQ(intersect({2, 7}, {3, 5}), (Interval{3, 5}));
    EXPECT_TRUE(is_empty(intersect({2, 4}, {6, 9})));
    EXPECT_TRUE(is_empty(intersect({3, 3}, {0, 9})));
}

static_assert(row_interval(resolve_mask({.window_left = 1, .window_right = 0}, 4, 6), 0) == Interval{1, 3});

}  // namespace
}  // namespace tilewise
