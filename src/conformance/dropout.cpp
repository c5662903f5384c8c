// Philox4x32-10 after its paper (Salmon et al., SC11): counter (key group, row, batch and head, offset), key (seed).
#include "conformance/dropout.hpp"

#include <array>
#include <cmath>

namespace tilewise::conformance {

namespace {

using Words = std::array<uint32_t, 4>;

Words philox(Words counter, std::array<uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const uint64_t a = uint64_t{counter[0]} * 0xD2511F53u, b = uint64_t{counter[2]} * 0xCD9E8D57u;
        counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
                   static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return counter;
}

}  // namespace

bool keeps(const DropoutSource& source, uint64_t batch_head, uint64_t row, uint64_t key) {
    if (source.p == 0) return true;
    // A generator call serves columns 2t, 2t + 1 of each of the four groups of eight in a block of 32.
    const uint64_t block = key / 32, within = key % 32, group_of_eight = within / 8, t = within % 8 / 2, odd = key % 2;
    const auto offset_high = static_cast<uint32_t>(source.offset >> 32);
    const Words words = philox(
        {static_cast<uint32_t>(4 * block + t), static_cast<uint32_t>(row), static_cast<uint32_t>(batch_head),
         static_cast<uint32_t>(source.offset)},
        {static_cast<uint32_t>(source.seed), static_cast<uint32_t>(source.seed >> 32) + offset_high * 0x9E3779B9u});
    const uint32_t decision = words[group_of_eight] >> (16 * odd) & 0xffffu;
    return decision >= std::floor(static_cast<double>(source.p) * 65536 + 0.5);
}

}  // namespace tilewise::conformance
