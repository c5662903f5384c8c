// Dropout decisions: Philox4x32-10 as a function of (seed, offset, batch, head, row, column) and nothing else, so every backend, tile
// and split, forward and backward, agree bit for bit. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11).
//
// One call of the generator gives 8 decisions of 16 bits. They serve the columns {2t, 2t+1} + {0, 8, 16, 24} of a 32-column block
// (t = 0..3): these are the columns that one thread of a tensor-core accumulator (m16n8 and wgmma alike) holds, so a GPU
// thread wastes none; a CPU makes 4 calls for 32 columns.
#pragma once

#include "math/types.hpp"

namespace tilewise {

struct PhiloxKey {
    uint32_t seed_low = 0;
    uint32_t seed_high = 0;
    uint32_t offset_low = 0;
};
struct PhiloxBlock {
    uint32_t word[4];
};

// The high half of the offset is spread into the key: the counter's four words are taken by column, row, (batch, head), offset.
TILEWISE_HD PhiloxKey philox_key(uint64_t seed, uint64_t offset) {
    const uint32_t offset_high = static_cast<uint32_t>(offset >> 32);
    return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32) + offset_high * 0x9E3779B9u,
            static_cast<uint32_t>(offset)};
}

TILEWISE_HD PhiloxBlock philox_4x32_10(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0, uint32_t k1) {
    for (int round = 0; round < 10; ++round) {
        const uint64_t product0 = 0xD2511F53ull * c0;
        const uint64_t product1 = 0xCD9E8D57ull * c2;
        const uint32_t n0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
        const uint32_t n2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
        c1 = static_cast<uint32_t>(product1);
        c3 = static_cast<uint32_t>(product0);
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

// The block that serves `column` (and seven others) of `row`; batch_head = batch * num_heads_q + head_q, its low 32 bits.
TILEWISE_HD PhiloxBlock dropout_block(PhiloxKey key, uint32_t batch_head, uint32_t row, uint32_t column) {
    const uint32_t group = (column / 32) * 4 + (column % 8) / 2;
    return philox_4x32_10(group, row, batch_head, key.offset_low, key.seed_low, key.seed_high);
}
// Place of `column` among the eight decisions of its block, 0..7.
TILEWISE_HD uint32_t dropout_slot(uint32_t column) { return ((column % 32) / 8) * 2 + (column & 1u); }
TILEWISE_HD uint32_t dropout_bits(const PhiloxBlock& block, uint32_t slot) {
    return (block.word[slot / 2] >> (16 * (slot & 1u))) & 0xffffu;
}
// A decision below the threshold drops: the true rate is dropout_p rounded to 2^-16. dropout_p in [0, 1).
TILEWISE_HD uint32_t dropout_threshold(float dropout_p) {
    return static_cast<uint32_t>(static_cast<double>(dropout_p) * 65536.0 + 0.5);
}
TILEWISE_HD bool dropout_keeps(PhiloxKey key, uint32_t threshold, uint32_t batch_head, uint32_t row, uint32_t column) {
    return dropout_bits(dropout_block(key, batch_head, row, column), dropout_slot(column)) >= threshold;
}

}  // namespace tilewise
