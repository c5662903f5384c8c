// Dropout decisions as the contract defines them (Philox4x32-10, see docs/math.md), written a second time apart from the library.
#pragma once

#include <cstdint>

namespace tilewise::conformance {

struct DropoutSource {
    uint64_t seed = 0;
    uint64_t offset = 0;
    float p = 0;
};

// True where the probability of (batch * num_heads_q + head, row, key) is kept.
bool keeps(const DropoutSource& source, uint64_t batch_head, uint64_t row, uint64_t key);

}  // namespace tilewise::conformance
