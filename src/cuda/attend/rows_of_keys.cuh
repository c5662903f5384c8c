// The mask read by keys, as a backward asks it.
#pragma once

#include "math/view.hpp"

namespace tilewise::cuda {

__device__ __forceinline__ bool has_row_intervals(const AttentionView& view) {
    return view.visibility.key_begin.given() || view.visibility.key_end.given();
}

// Rows of a sequence that see every key of `keys`, by position, which lie in it. Rows past the last query count.
__device__ inline Interval rows_that_see_all(const IntervalMask& mask, int32_t seqlen_q, Interval keys) {
    int32_t low = 0, high = seqlen_q;
    while (low < high) {  // first row whose interval reaches the last key
        const int32_t middle = low + (high - low) / 2;
        if (detail::raw_end(mask, middle) >= keys.end)
            high = middle;
        else
            low = middle + 1;
    }
    const int32_t begin = low;
    high = seqlen_q;
    while (low < high) {  // first row whose interval begins past the first key
        const int32_t middle = low + (high - low) / 2;
        if (detail::raw_begin(mask, middle) > keys.begin)
            high = middle;
        else
            low = middle + 1;
    }
    return {begin, low == seqlen_q ? kMaxSeqlen : low};
}

}  // namespace tilewise::cuda
