// The steps by which make_instance fills an instance, in this order. Private to instance*.cpp.
#pragma once

#include <initializer_list>
#include <limits>
#include <vector>

#include "conformance/element.hpp"
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

// A tensor of the instance, every value of it `fill`.
TensorData& add_tensor(Instance& instance, Slot slot, DType dtype, std::vector<int64_t> shape,
                       double fill = std::numeric_limits<double>::quiet_NaN());
// Leading axes of a tensor with one entry a row: (batch, dense_rows), or (total rows) where `ragged` lists the sequences.
std::vector<int64_t> row_shape(const Instance& instance, const std::vector<int>& ragged, int64_t dense_rows);
std::vector<int64_t> with(std::vector<int64_t> shape, std::initializer_list<int64_t> more);

// Fills row `row` of a (rows, heads, dim) tensor, every value rounded to its type.
template <class Draw> void fill_row(TensorData& tensor, int64_t row, Draw&& draw_one) {
    const int64_t dim = tensor.shape.back(), heads = tensor.shape[tensor.shape.size() - 2];
    for (int64_t i = 0; i < heads * dim; ++i)
        tensor.values[static_cast<size_t>(row * heads * dim + i)] = rounded(tensor.dtype, draw_one(i % dim));
}

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
