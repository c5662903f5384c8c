// The packing of bf16 rows for products of pairs along k; bits are moved, never converted. Layouts: rows stay row-major
// (two neighbours of a row are a pair already); panels hold, for each pair of k, two bf16 a column. A source that is
// not contiguous is gathered. Included by tile_ops.cpp only, for instruction sets with TILEWISE_SIMD_HAS_PAIRS.
#pragma once

#include "cpu/simd/kernel_pack.hpp"

namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET {

// Columns column .. column + 2 * width - 1 of a row, as the bits of one vector.
inline Float load_pair_piece(const RowSource& source, int row, int column) {
    if (row >= source.num_rows || source.rows[row] == nullptr || column >= source.num_columns) return zero();
    const BF16* p = static_cast<const BF16*>(source.rows[row]) + column * source.stride;
    const int count = min_of(source.num_columns - column, 2 * kWidth);
    Float bits;
    if (source.stride == 1 && count == 2 * kWidth) {
        __builtin_memcpy(&bits, p, sizeof bits);
        return bits;
    }
    BF16 lane[2 * kWidth] = {};
    for (int i = 0; i < count; ++i) lane[i] = p[i * source.stride];
    __builtin_memcpy(&bits, lane, sizeof bits);
    return bits;
}

// The zeros past an odd number of columns are part of the contract; the row stride leaves room for whole vectors.
inline void pack_rows_in_pairs(const RowSource& source, void* out, int64_t row_stride) {
    BF16* row = static_cast<BF16*>(out);
    for (int r = 0; r < source.num_rows; ++r, row += row_stride)
        for (int c = 0; c < source.num_columns; c += 2 * kWidth) {
            const Float bits = load_pair_piece(source, r, c);
            __builtin_memcpy(row + c, &bits, sizeof bits);
        }
}

inline void pack_transposed_in_pairs(const RowSource& source, void* out, int64_t panel_stride) {
    for (int r = 0; r < source.num_rows; r += kWidth) {
        BF16* column = static_cast<BF16*>(out) + r / kPanel * panel_stride + r % kPanel * 2;
        for (int c = 0; c < source.num_columns; c += 2 * kWidth) {
            Float block[kWidth];
            for (int i = 0; i < kWidth; ++i) block[i] = load_pair_piece(source, r + i, c);
            transpose(block);  // of 32-bit pairs
            const int pairs = min_of((source.num_columns - c + 1) / 2, kWidth);
            for (int i = 0; i < pairs; ++i)
                __builtin_memcpy(column + (c / 2 + i) * kPanel * 2, &block[i], sizeof block[i]);
        }
    }
}

inline void pack_panels_in_pairs(const RowSource& source, void* out, int64_t panel_stride) {
    for (int c = 0; c < source.num_columns; c += kWidth) {
        BF16* column = static_cast<BF16*>(out) + c / kPanel * panel_stride + c % kPanel * 2;
        for (int r = 0; r < source.num_rows; r += 2) {
            const Float pairs = interleave(load_piece<BF16>(source, r, c), load_piece<BF16>(source, r + 1, c));
            __builtin_memcpy(column + r * kPanel, &pairs, sizeof pairs);
        }
    }
}

}  // namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET
