// The steps by which make_instance fills an instance, in this order. Private to instance*.cpp.
#pragma once

#include "conformance/instance.hpp"
#include "conformance/random.hpp"

namespace tilewise::conformance {

// Where the keys of a dense, ragged or paged k lie.
struct CachePlaces {
    int64_t capacity = 0;  // rows of one cache row
    int64_t num_rows = 0;  // cache rows, or rows of the page table
    int64_t max_pages = 0;
    int64_t num_pages = 0;
    std::vector<int64_t> cache_rows;  // of each sequence
    std::vector<int64_t> page_table;  // (num_rows, max_pages)
    std::vector<uint8_t> used_pages;  // of the page table: entries that the call may read
    std::vector<int64_t> first_rows;  // of each ragged sequence
};

void add_lengths(Instance& instance);
void add_cache(Instance& instance, const CachePlaces& cache, Random& random);
// q, k, v, k_new, v_new.
void add_data(Instance& instance, const CachePlaces& cache, Random& random);
void add_mask_and_score(Instance& instance, Random& random);
// o, lse and the gradients, given and wanted.
void add_outputs(Instance& instance, Random& random);
// Layouts, and equal values along axes of stride 0.
void apply_layouts(Instance& instance);

}  // namespace tilewise::conformance
