// Where a key of a sequence lies in memory: dense, ragged and paged caches differ only here. `key` counts from the first
// valid key, so left padding is already part of the answer. Offsets are 64-bit: page id x page stride passes 2^31 early.
#pragma once

#include "math/types.hpp"

namespace tilewise {

struct KeyPlace {
    int64_t page;  // first index of a paged k or v (num_pages, page_size, hk, d); the cache row of a dense one
    int64_t slot;  // row in it
};

// page_table_row: int32 (max_pages) of this sequence, element stride `page_table_stride`; any page_size >= 1.
TILEWISE_HD KeyPlace paged_key(const int32_t* page_table_row, int64_t page_table_stride, int64_t page_size,
                               int64_t key) {
    return {page_table_row[(key / page_size) * page_table_stride], key % page_size};
}

// Ids past the last page, and negative ones, become the last page: whatever an index in a device's memory says, no read leaves the cache.
TILEWISE_HD uint32_t page_within(int64_t id, uint32_t last_page) {
    return min_of<uint32_t>(static_cast<uint32_t>(id), last_page);
}

}  // namespace tilewise
