// Matrix products of packed tiles (Product of tile_ops.hpp): a register tile of kRowTile x 2 vectors of c stays in
// registers while k runs; one value of a is broadcast against two vectors of b. Each element of c is a single chain of
// fused additions in ascending k whatever the tile's shape, so a row's bits depend neither on its neighbours nor on the
// number of rows. Included by tile_ops.cpp only, after the header of its instruction set.
#pragma once

#include "cpu/simd/tile_ops.hpp"

namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET {

constexpr int kPanel = 2 * kWidth;
constexpr int kRowQuantum = kRowTile / 3;

// How one step along k reads its operands and adds to a vector of c.
struct FloatOperands {
    using Type = float;
    using Vector = Float;
    static constexpr DType kFormat = DType::kF32;
    static constexpr int kDepth = 1;  // k per step
    static Vector load_b(const float* p) { return load(p); }
    static Vector broadcast_a(const float* p) { return broadcast(*p); }
    static Float add_product(Float sum, Vector a, Vector b) { return fma(a, b, sum); }
};

#if defined(TILEWISE_SIMD_HAS_PAIRS)
struct PairOperands {
    using Type = BF16;
    using Vector = Pairs;
    static constexpr DType kFormat = DType::kBF16;
    static constexpr int kDepth = 2;
    static Vector load_b(const BF16* p) { return load_pairs(p); }
    static Vector broadcast_a(const BF16* p) { return broadcast_pair(p); }
    static Float add_product(Float sum, Vector a, Vector b) { return dot_pairs(sum, a, b); }
};
#endif

// Values of a for one step along k, from one moving address: row r = odd * 2^i lies at odd * stride, scaled by 2^i,
// which an addressing mode does for free. Six strides serve twelve rows; twelve addresses would not fit the general
// registers.
template <bool kTransposed, class Type> struct RowCursor {
    const unsigned char* a;
    int64_t step;    // bytes along k, as are the strides
    int64_t odd[6];  // 1, 3, 5 ... 11 row strides
    RowCursor(const Type* first, const Product& p, int depth)
        : a(reinterpret_cast<const unsigned char*>(first)),
          step((kTransposed ? p.a_k : depth) * int64_t{sizeof(Type)}) {
        for (int i = 0; i < 6; ++i) odd[i] = (2 * i + 1) * p.a_row * int64_t{sizeof(Type)};
    }
    const Type* at(int row) const {
        if (kTransposed) return reinterpret_cast<const Type*>(a) + row;
        if (row == 0) return reinterpret_cast<const Type*>(a);
        const int scale = row & -row;
        return reinterpret_cast<const Type*>(a + odd[row / scale / 2] * scale);
    }
    void advance() { a += step; }
};

// c[kRows x kVectors * width]. Not inlined: one copy a shape, with all registers to itself.
template <class Operands, int kRows, int kVectors, bool kTransposed>
[[gnu::noinline]] void multiply_block(const Product& p, const typename Operands::Type* a,
                                      const typename Operands::Type* b, float* c) {
    constexpr int kDepth = Operands::kDepth;
    Float sum[kRows][kVectors];
    const float* c_in = c;
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r, c_in += p.c_row)
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sum[r][v] = p.accumulate ? load(c_in + v * kWidth) : zero();

    RowCursor<kTransposed, typename Operands::Type> rows(a, p, kDepth);
    const int64_t b_k = p.b_k;
    for (int steps = (p.k + kDepth - 1) / kDepth; steps > 0; --steps) {
        typename Operands::Vector b_vector[kVectors];
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) b_vector[v] = Operands::load_b(b + v * kWidth * kDepth);
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) {
            const typename Operands::Vector a_value = Operands::broadcast_a(rows.at(r));
#pragma GCC unroll 2
            for (int v = 0; v < kVectors; ++v) sum[r][v] = Operands::add_product(sum[r][v], a_value, b_vector[v]);
        }
        rows.advance();
        b += b_k;
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r, c += p.c_row)
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) store(c + v * kWidth, sum[r][v]);
}

template <class Operands, int kVectors, bool kTransposed>
void multiply_panel(const Product& p, const typename Operands::Type* b, float* c) {
    const auto* a = static_cast<const typename Operands::Type*>(p.a);
    int m = 0;
    for (; m + kRowTile <= p.m; m += kRowTile)
        multiply_block<Operands, kRowTile, kVectors, kTransposed>(p, a + m * p.a_row, b, c + m * p.c_row);
    if (m + 2 * kRowQuantum <= p.m) {
        multiply_block<Operands, 2 * kRowQuantum, kVectors, kTransposed>(p, a + m * p.a_row, b, c + m * p.c_row);
    } else if (m < p.m) {
        multiply_block<Operands, kRowQuantum, kVectors, kTransposed>(p, a + m * p.a_row, b, c + m * p.c_row);
    }
}

template <class Operands, bool kTransposed> void multiply_tile(const Product& p) {
    const auto* b = static_cast<const typename Operands::Type*>(p.b);
    int n = 0;
    for (; n + kPanel <= p.n; n += kPanel, b += p.b_panel) multiply_panel<Operands, 2, kTransposed>(p, b, p.c + n);
    if (n < p.n) multiply_panel<Operands, 1, kTransposed>(p, b, p.c + n);
}

template <class Operands> void multiply(const Product& p) {
    if constexpr (Operands::kDepth == 1) {
        if (p.a_k != 1) return multiply_tile<Operands, true>(p);
    }
    multiply_tile<Operands, false>(p);
}

}  // namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET
