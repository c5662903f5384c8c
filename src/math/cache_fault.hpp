// What can be wrong with lengths and indices of a cache that only the device knows: bits of the flag that an append raises. Values
// are those of tilewise_cache_fault in the C header.
#pragma once

#include "math/types.hpp"

namespace tilewise {

enum CacheFault : int32_t {
    kFaultLength = 1,    // cache_seqlens is negative, or the new rows do not fit the cache
    kFaultNewRows = 2,   // cu_seqlens_k_new does not start at 0, decreases, or passes the rows of k_new
    kFaultCacheRow = 4,  // cache_batch_idx is no row of the cache (of the page table)
    kFaultPage = 8,      // page_table holds an id that k has no page for, where a new row goes
    kFaultPosition = 16  // rotary_cos has no row for the position of a new key or of a query
};

}  // namespace tilewise
