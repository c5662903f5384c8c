// A problem in numbers: every tensor of a call as doubles in row-major order of its shape, rounded to its element type, and for every
// sequence where its rows and keys are. Made from a spec and an element type, deterministic in the spec's seed.
//
// What a call must not read (rows and keys of no sequence, unused pages and padding, bias and mask outside of a sequence) is NaN
// or out of range.
#pragma once

#include <map>
#include <vector>

#include "conformance/slot.hpp"
#include "conformance/spec.hpp"

namespace tilewise::conformance {

enum class Access { kIn, kOut, kInOut };

struct TensorData {
    DType dtype = DType::kNone;
    std::vector<int64_t> shape;
    std::vector<double> values;  // of an output: none
    Access access = Access::kIn;
    std::vector<uint8_t> writable;  // kInOut: 1 for the elements that the call writes
    Layout layout = Layout::kContiguous;
    uint32_t shared_axes = 0;  // bit i: axis i has stride 0

    int64_t num_elements() const {
        int64_t count = 1;
        for (const int64_t n : shape) count *= n;
        return count;
    }
};

struct SequenceData {
    int64_t first_row = 0;          // of q, o, as a row of (batch, seqlen_q) or (total_q)
    int64_t num_rows = 0;           // used
    int64_t num_cached = 0;         // keys that lie in k before the call; the rest comes from k_new
    std::vector<int64_t> key_rows;  // of each key, the new ones included, as a row of k without its head and dim axes
    int64_t first_new = 0;          // row of k_new
    int64_t rotary_position = 0;    // of the first new key
    int64_t prefix = 0;
    int64_t num_keys() const { return static_cast<int64_t>(key_rows.size()); }
};

struct Instance {
    ProblemSpec spec;
    DType dtype = DType::kF32;
    std::map<Slot, TensorData> tensors;
    std::vector<SequenceData> sequences;
    int64_t max_rows_q = 0;  // of one sequence: what masks and biases are sized by
    int64_t max_rows_k = 0;

    bool has(Slot slot) const { return tensors.count(slot) != 0; }
    const TensorData& at(Slot slot) const { return tensors.at(slot); }
    const std::vector<double>& values(Slot slot) const { return tensors.at(slot).values; }
    // Index into the values of lse.
    int64_t lse_index(size_t sequence, int64_t head, int64_t row) const;
    // Index into a (batch, head, row, key) tensor with axes of size 1.
    int64_t pair_index(const TensorData& tensor, size_t sequence, int64_t head, int64_t row, int64_t key) const;
};

Instance make_instance(const ProblemSpec& spec, DType dtype);

}  // namespace tilewise::conformance
