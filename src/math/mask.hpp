// Which keys a query row sees. Every positional mask (none, causal, window, chunk, block, prefix, document) gives each row one
// interval of keys, so a kernel asks three questions and knows no mask: the interval of a row, the keys that some row of a
// tile sees (visit), and the keys that every row of a tile sees (interior, where nothing has to be masked).
//
// Both ends of the interval never decrease with the row, therefore the first and the last row of a tile decide for all of
// them. Positions are 32-bit: one sequence has at most kMaxSeqlen rows (validate refuses more); offsets in memory are 64-bit.
#pragma once

#include "math/types.hpp"

namespace tilewise {

constexpr int32_t kMaxSeqlen = (1 << 30) - 1;
constexpr int32_t kUnlimited = -1;  // of a window side

// Keys [begin, end); begin <= end always, empty when equal.
struct Interval {
    int32_t begin = 0;
    int32_t end = 0;
    constexpr bool operator==(const Interval&) const = default;
};
TILEWISE_HD bool is_empty(Interval x) { return x.begin >= x.end; }
TILEWISE_HD Interval intersect(Interval a, Interval b) {
    const int32_t begin = max_of(a.begin, b.begin);
    return {begin, max_of(begin, min_of(a.end, b.end))};
}

// What the caller asks for, the same for every sequence of a call.
struct MaskSpec {
    int32_t window_left = kUnlimited;   // keys >= i + offset - window_left
    int32_t window_right = kUnlimited;  // keys <= i + offset + window_right; causal is 0
    int32_t chunk = 0;                  // > 0: only keys of the chunk that holds i + offset
    int32_t block = 0;                  // > 0: only keys up to the end of the block that holds i + offset
    int32_t prefix = 0;                 // keys < prefix are visible whatever the right side says
    bool top_left = false;              // offset 0 instead of seqlen_k - seqlen_q
    constexpr bool operator==(const MaskSpec&) const = default;
};

// The same mask for one sequence's lengths. left and right are clamped so that no sum below leaves 32 bits.
struct IntervalMask {
    int32_t seqlen_k = 0;
    int32_t offset = 0;
    int32_t left = 0;
    int32_t right = 0;
    int32_t chunk = 0;
    int32_t block = 0;
    int32_t prefix = 0;
};

TILEWISE_HD IntervalMask resolve_mask(const MaskSpec& spec, int32_t seqlen_q, int32_t seqlen_k) {
    // A side that reaches past every key from every row is the same as no side at all.
    const int32_t reach = seqlen_q > seqlen_k ? seqlen_q : seqlen_k;
    IntervalMask mask;
    mask.seqlen_k = seqlen_k;
    mask.offset = spec.top_left ? 0 : seqlen_k - seqlen_q;
    mask.left = spec.window_left < 0 ? reach : min_of(spec.window_left, reach);
    mask.right = spec.window_right < 0 ? reach : min_of(spec.window_right, reach);
    mask.chunk = spec.chunk;
    mask.block = spec.block;
    mask.prefix = min_of(spec.prefix, seqlen_k);
    return mask;
}

// Floor division for a possibly negative position; divisor > 0.
TILEWISE_HD int32_t floor_div(int32_t a, int32_t b) { return a >= 0 ? a / b : -(-(a + 1) / b) - 1; }

namespace detail {
// The lower of `end` and the end of the stretch of `size` keys that holds the position. That may lie past 2^31: compared in 64 bits.
TILEWISE_HD int32_t end_within(int32_t end, int32_t position, int32_t size) {
    const int64_t stretch_end = (static_cast<int64_t>(floor_div(position, size)) + 1) * size;
    return static_cast<int32_t>(min_of(static_cast<int64_t>(end), stretch_end));
}
// Ends before clamping; both never decrease with the row.
TILEWISE_HD int32_t raw_begin(const IntervalMask& mask, int32_t row) {
    const int32_t position = row + mask.offset;
    int32_t begin = position - mask.left;
    if (mask.chunk > 0) begin = max_of(begin, floor_div(position, mask.chunk) * mask.chunk);
    return mask.prefix > 0 ? 0 : begin;
}
TILEWISE_HD int32_t raw_end(const IntervalMask& mask, int32_t row) {
    const int32_t position = row + mask.offset;
    int32_t end = position + mask.right + 1;
    if (mask.chunk > 0) end = end_within(end, position, mask.chunk);
    if (mask.block > 0) end = end_within(end, position, mask.block);
    return max_of(end, mask.prefix);
}
TILEWISE_HD Interval clamped(const IntervalMask& mask, int32_t begin, int32_t end) {
    const int32_t first = clamp_to(begin, 0, mask.seqlen_k);
    return {first, clamp_to(end, first, mask.seqlen_k)};
}
}  // namespace detail

// Keys that `row` sees.
TILEWISE_HD Interval row_interval(const IntervalMask& mask, int32_t row) {
    return detail::clamped(mask, detail::raw_begin(mask, row), detail::raw_end(mask, row));
}
// Keys outside of which no row of [row_begin, row_end) sees any; needs row_begin < row_end.
TILEWISE_HD Interval visit_range(const IntervalMask& mask, int32_t row_begin, int32_t row_end) {
    return detail::clamped(mask, detail::raw_begin(mask, row_begin), detail::raw_end(mask, row_end - 1));
}
// Keys that every row of [row_begin, row_end) sees; needs row_begin < row_end. Can be empty.
TILEWISE_HD Interval interior_range(const IntervalMask& mask, int32_t row_begin, int32_t row_end) {
    return detail::clamped(mask, detail::raw_begin(mask, row_end - 1), detail::raw_end(mask, row_begin));
}
// Rows of [0, seqlen_q) outside of which no row sees any key of [key_begin, key_end): the visit range of the backward
// pass. Found by bisection, since both ends never decrease.
TILEWISE_HD Interval visiting_rows(const IntervalMask& mask, int32_t seqlen_q, Interval keys) {
    int32_t low = 0, high = seqlen_q;
    while (low < high) {  // first row whose interval ends past the first key
        const int32_t middle = low + (high - low) / 2;
        if (detail::raw_end(mask, middle) > keys.begin)
            high = middle;
        else
            low = middle + 1;
    }
    const int32_t first = low;
    high = seqlen_q;
    while (low < high) {  // first row whose interval begins at or past the last key's end
        const int32_t middle = low + (high - low) / 2;
        if (detail::raw_begin(mask, middle) >= keys.end)
            high = middle;
        else
            low = middle + 1;
    }
    return {first, low};
}

}  // namespace tilewise
