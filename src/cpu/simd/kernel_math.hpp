// exp2 and tanh on the vector vocabulary, and loops over the visible part of a row.
//
// exp2: x = n + f with n whole and |f| <= 1/2; a polynomial of degree 6 for 2^f (relative error 2e-9 before rounding,
// exactly 1 at 0) times 2^n: within 2 ulp, 0 below 2^-126.5, infinity from 2^127.5. tanh: an odd polynomial up to
// 0.625, then 1 - 2 / (exp(2x) + 1): within 4 ulp. Both coefficient sets are minimax fits. NaN stays NaN in both.
// Included by tile_ops.cpp only, after the header of its instruction set.
#pragma once

#include "cpu/simd/tile_ops.hpp"

namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET {

constexpr float kLog2E = 1.44269504088896340736f;

// For x below about 1, which the exponents of a softmax are.
inline Float exp2_of_low(Float x) {
    x = max(broadcast(-127.0f), x);  // keeps a NaN, which comes second
    // Adding 1.5 * 2^23 rounds x to a whole number n and leaves n in the low bits of the sum; with 127 on top, those
    // bits are the exponent field of 2^n, and 0 for the lowest n. No subnormal arises, which would cost a hundred
    // cycles.
    const Float shifter = broadcast(12582912.0f + 127.0f);
    const Float shifted = x + shifter;
    const Float f = x - (shifted - shifter);
    Float p = broadcast(0x1.41d334p-13f);
    p = fma(p, f, broadcast(0x1.5f456ap-10f));
    p = fma(p, f, broadcast(0x1.3b2dbcp-7f));
    p = fma(p, f, broadcast(0x1.c6aed4p-5f));
    p = fma(p, f, broadcast(0x1.ebfbdap-3f));
    p = fma(p, f, broadcast(0x1.62e430p-1f));
    p = fma(p, f, broadcast(1.0f));
    return p * power_of_low_bits(shifted);
}
inline Float exp2(Float x) { return exp2_of_low(min(broadcast(128.0f), x)); }

inline Float tanh(Float x) {
    const Float magnitude = abs(x);
    const Float square = x * x;
    Float p = broadcast(-0.0057170456275343895f);
    p = fma(p, square, broadcast(0.02065058797597885f));
    p = fma(p, square, broadcast(-0.05374349653720856f));
    p = fma(p, square, broadcast(0.13331490755081177f));
    p = fma(p, square, broadcast(-0.3333328366279602f));
    const Float near_zero = fma(x * square, p, x);
    const Float power = exp2(magnitude * broadcast(2.0f * kLog2E));
    const Float far = broadcast(1.0f) - broadcast(2.0f) / (power + broadcast(1.0f));
    // A NaN is not less than 0.625 and comes out of `far`.
    return select(less(magnitude, broadcast(0.625f)), near_zero, with_sign(far, x));
}

// All lanes of a vector, as a mask that costs nothing.
struct AllLanes {};
inline Float keep(AllLanes, Float x) { return x; }
inline Float select(AllLanes, Float a, Float) { return a; }

// Calls body(column, mask) for the vectors that hold columns begin .. end - 1: first the one or two that are visible in
// part, then the others, with AllLanes for a mask. Vectors start at multiples of the width, so which lane a column
// falls in and in which order a row's vectors come follow from its interval alone.
template <class Body> inline void for_visible_vectors(Interval visible, Body&& body) {
    const int first_whole = static_cast<int>(round_up(visible.begin, kWidth));
    const int end_whole = visible.end / kWidth * kWidth;
    for (int column = visible.begin / kWidth * kWidth; column < visible.end;
         column = column < end_whole ? end_whole : visible.end)
        if (column < first_whole || column >= end_whole)
            body(column, lanes(max_of(visible.begin - column, 0), min_of(visible.end - column, kWidth)));
    for (int column = first_whole; column < end_whole; column += kWidth) body(column, AllLanes{});
}

// Calls body(column) for the vectors before and behind the visible ones, up to num_columns.
template <class Body> inline void for_hidden_vectors(Interval visible, int num_columns, Body&& body) {
    const int first = visible.begin < visible.end ? visible.begin / kWidth * kWidth : num_columns;
    for (int column = 0; column < first; column += kWidth) body(column);
    for (int column = static_cast<int>(round_up(visible.end, kWidth)); column < num_columns && first < num_columns;
         column += kWidth)
        body(column);
}

}  // namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET
