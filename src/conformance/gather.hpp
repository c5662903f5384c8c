// One head of one sequence out of an instance, as a DenseHead: rows and keys looked up, masks and terms spelt out by the words of the contract,
// new keys appended and rotated. Shares no code with the library.
#pragma once

#include "conformance/dense.hpp"
#include "conformance/instance.hpp"

namespace tilewise::conformance {

// How rotary is computed: exactly, or in fp32 and rounded to the element type, as it enters the cache.
enum class Rotation { kExact, kRounded };

DenseHead gather_head(const Instance& instance, size_t sequence, int64_t head_q, Rotation rotation);

// Row `t` of the new keys of a sequence, one head: (head_dim), rotated if the instance asks for it.
std::vector<double> new_key(const Instance& instance, size_t sequence, int64_t head_kv, int64_t t, Rotation rotation);

// True where the mask lets row i see key j; i and j count within the sequence.
bool is_visible(const Instance& instance, size_t sequence, int64_t head_q, int64_t i, int64_t j);

}  // namespace tilewise::conformance
