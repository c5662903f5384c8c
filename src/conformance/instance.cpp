// Lays the sequences of a spec out (which row of q, which row of k) and orders the making of its tensors; see instance.hpp. The values are
// made in instance_tensors.cpp.
#include "conformance/instance.hpp"

#include <algorithm>

#include "conformance/instance_parts.hpp"

namespace tilewise::conformance {

namespace {

int64_t entry(const std::vector<int>& values, size_t i, int64_t otherwise) {
    return values.empty() ? otherwise : values[i];
}

// Index of a key's row in k, by the kind of cache.
int64_t key_row(const ProblemSpec& spec, const CachePlaces& cache, size_t sequence, int64_t row) {
    if (!spec.lengths.rows_k.empty()) return cache.first_rows[sequence] + row;
    const int64_t cache_row = cache.cache_rows[sequence];
    if (spec.cache.page_size == 0) return cache_row * cache.capacity + row;
    const int64_t page_size = spec.cache.page_size;
    const int64_t page = cache.page_table[static_cast<size_t>(cache_row * cache.max_pages + row / page_size)];
    return page * page_size + row % page_size;
}

CachePlaces place_cache(const ProblemSpec& spec, Random& random) {
    CachePlaces cache;
    const int64_t page_size = spec.cache.page_size;
    cache.max_pages = page_size > 0 ? (spec.sizes.seqlen_k + page_size - 1) / page_size : 0;
    cache.capacity = page_size > 0 ? cache.max_pages * page_size : spec.sizes.seqlen_k;
    cache.num_rows = spec.sizes.batch + (spec.cache.batch_idx ? 2 : 0);
    cache.cache_rows = random.permutation(cache.num_rows);
    if (!spec.cache.batch_idx) std::sort(cache.cache_rows.begin(), cache.cache_rows.end());
    cache.num_pages = cache.num_rows * cache.max_pages + (page_size > 0 ? 1 : 0);
    cache.page_table = random.permutation(cache.num_pages);
    cache.used_pages.assign(cache.page_table.size(), 0);
    int64_t row = 0;
    for (const int rows : spec.lengths.rows_k) {
        cache.first_rows.push_back(row);
        row += rows;
    }
    return cache;
}

void mark_page(const ProblemSpec& spec, CachePlaces& cache, size_t sequence, int64_t row) {
    if (spec.cache.page_size == 0) return;
    const int64_t index = cache.cache_rows[sequence] * cache.max_pages + row / spec.cache.page_size;
    cache.used_pages[static_cast<size_t>(index)] = 1;
}

// Keys of one sequence: those in k, then those that the call appends.
void place_keys(const ProblemSpec& spec, CachePlaces& cache, size_t i, SequenceData* sequence) {
    const int64_t added = entry(spec.cache.ragged_new, i, spec.cache.new_rows);
    const int64_t allocated = entry(spec.lengths.rows_k, i, cache.capacity);
    const int64_t first = entry(spec.lengths.leftpad, i, 0);
    const bool cached = !spec.cache.lengths.empty();
    const int64_t length = cached ? spec.cache.lengths[i] : entry(spec.lengths.used_k, i, allocated);
    const int64_t end = length + (cached ? added : 0);
    // An append alone reads no key of the cache, so the pages of those may be anything.
    const int64_t first_touched = spec.op == Op::kAppend ? length : first;
    for (int64_t row = first; row < end; ++row) {
        if (row >= first_touched) mark_page(spec, cache, i, row);
        sequence->key_rows.push_back(key_row(spec, cache, i, row));
    }
    sequence->num_cached = std::max<int64_t>(length - first, 0);
    sequence->rotary_position = entry(spec.cache.rotary_seqlens, i, length);
    for (size_t j = 0; j < i; ++j) sequence->first_new += entry(spec.cache.ragged_new, j, spec.cache.new_rows);
}

void place_sequences(Instance& instance, CachePlaces& cache) {
    const ProblemSpec& spec = instance.spec;
    int64_t row = 0;
    for (size_t i = 0; i < static_cast<size_t>(spec.sizes.batch); ++i) {
        SequenceData sequence;
        const int64_t allocated = entry(spec.lengths.rows_q, i, spec.sizes.seqlen_q);
        sequence.first_row = row;
        sequence.num_rows = entry(spec.lengths.used_q, i, allocated);
        sequence.prefix = entry(spec.mask.prefix_lens, i, spec.mask.prefix);
        place_keys(spec, cache, i, &sequence);
        instance.sequences.push_back(std::move(sequence));
        row += allocated;
    }
}

int64_t total_of(const std::vector<int>& rows, int spare) {
    int64_t total = spare;
    for (const int n : rows) total += n;
    return total;
}

// What the library takes for the longest sequence: what masks and biases are sized by.
int64_t longest(const std::vector<int>& rows, const LengthsSpec& lengths, int64_t dense) {
    if (rows.empty()) return dense;
    const int64_t total = total_of(rows, lengths.spare_rows);
    const int64_t longest_row = *std::max_element(rows.begin(), rows.end());
    return lengths.bounds && longest_row > 0 ? longest_row : total;
}

}  // namespace

int64_t Instance::lse_index(size_t sequence, int64_t head, int64_t row) const {
    const int64_t absolute = sequences[sequence].first_row + row;
    if (!spec.lengths.rows_q.empty()) return head * total_of(spec.lengths.rows_q, spec.lengths.spare_rows) + absolute;
    return (static_cast<int64_t>(sequence) * spec.sizes.heads_q + head) * spec.sizes.seqlen_q + row;
}

int64_t Instance::pair_index(const TensorData& tensor, size_t sequence, int64_t head, int64_t row, int64_t key) const {
    const int64_t place[] = {static_cast<int64_t>(sequence), head, row, key};
    int64_t index = 0;
    for (size_t axis = 0; axis < 4; ++axis) {
        const bool shared = tensor.shape[axis] == 1 || (tensor.shared_axes >> axis & 1) != 0;
        index = index * tensor.shape[axis] + (shared ? 0 : place[axis]);
    }
    return index;
}

Instance make_instance(const ProblemSpec& spec, DType dtype) {
    Instance instance;
    instance.spec = spec;
    instance.dtype = dtype;
    Random random(spec.seed);
    CachePlaces cache = place_cache(spec, random);
    place_sequences(instance, cache);
    instance.max_rows_q = longest(spec.lengths.rows_q, spec.lengths, spec.sizes.seqlen_q);
    instance.max_rows_k = longest(spec.lengths.rows_k, spec.lengths, cache.capacity);
    add_lengths(instance);
    add_cache(instance, cache, random);
    add_data(instance, cache, random);
    add_mask_and_score(instance, random);
    add_outputs(instance, random);
    apply_layouts(instance);
    return instance;
}

}  // namespace tilewise::conformance
