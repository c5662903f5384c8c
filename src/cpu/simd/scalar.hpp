// The vector vocabulary without special instructions: 4 floats, by the vector extension of GCC and Clang, for any CPU.
//
// Each header of this folder defines the same names, in the namespace TILEWISE_SIMD_TARGET. tile_ops.cpp is compiled
// once per instruction set, with that set's flags, header and namespace; so whatever it defines has a name that no
// other object has, and the linker can never put an AVX-512 copy of a function into code for a smaller CPU. For the
// same reason these headers and the kernel_*.hpp use no standard library template, and of ours only math/, whose
// functions are always inlined.
#pragma once

#include "math/types.hpp"

namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET {

using Float = float __attribute__((vector_size(16)));
using Mask = int32_t __attribute__((vector_size(16)));  // all bits of a lane, or none
constexpr int kWidth = 4;
// Rows of the product kernel's register tile: 6 x 2 vectors leave 4 of 16 registers for operands.
constexpr int kRowTile = 6;

inline Float zero() { return Float{}; }
inline Float broadcast(float x) { return Float{x, x, x, x}; }
inline Float iota() { return Float{0, 1, 2, 3}; }
// Rounded twice: a fused one would be a library call on a CPU without the instruction.
inline Float fma(Float a, Float b, Float c) { return a * b + c; }
// b where either is NaN.
inline Float max(Float a, Float b) { return a > b ? a : b; }
inline Float min(Float a, Float b) { return a < b ? a : b; }
inline float reduce_add(Float x) { return (x[0] + x[2]) + (x[1] + x[3]); }
inline float reduce_max(Float x) { return max_of(max_of(x[0], x[2]), max_of(x[1], x[3])); }

// Lanes begin .. end - 1; 0 <= begin, end <= kWidth.
inline Mask lanes(int begin, int end) {
    const Mask lane{0, 1, 2, 3};
    return (lane >= begin) & (lane < end);
}
inline Mask nonzero_bytes(const uint8_t* p) { return Mask{p[0], p[1], p[2], p[3]} != 0; }
inline Mask less(Float a, Float b) { return a < b; }
inline Float select(Mask mask, Float a, Float b) { return mask ? a : b; }
inline Float keep(Mask mask, Float x) { return reinterpret_cast<Float>(reinterpret_cast<Mask>(x) & mask); }
inline Float abs(Float x) { return reinterpret_cast<Float>(reinterpret_cast<Mask>(x) & 0x7fffffff); }
// magnitude >= 0 with the sign of `sign`.
inline Float with_sign(Float magnitude, Float sign) {
    const Mask sign_bit = reinterpret_cast<Mask>(sign) & reinterpret_cast<Mask>(broadcast(-0.0f));
    return reinterpret_cast<Float>(reinterpret_cast<Mask>(magnitude) | sign_bit);
}

// The low 9 bits of a float's representation as sign and exponent of another, whose fraction is 0.
inline Float power_of_low_bits(Float x) { return reinterpret_cast<Float>(reinterpret_cast<Mask>(x) << 23); }

namespace detail {
template <class T> inline Float load_lanes(const T* p, int count) {
    Float x{};
    for (int i = 0; i < count; ++i) x[i] = to_float(p[i]);
    return x;
}
template <class T> inline void store_lanes(T* p, Float x, int count) {
    for (int i = 0; i < count; ++i) p[i] = Element<T>::store(x[i]);
}
}  // namespace detail

inline Float load(const float* p) {
    Float x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
}
template <class T> inline Float load(const T* p) { return detail::load_lanes(p, kWidth); }
// The first `count` elements, 0 in the other lanes; nothing past them is read.
template <class T> inline Float load_first(const T* p, int count) { return detail::load_lanes(p, count); }

// Stores round once, to nearest even.
inline void store(float* p, Float x) { __builtin_memcpy(p, &x, sizeof x); }
template <class T> inline void store(T* p, Float x) { detail::store_lanes(p, x, kWidth); }
template <class T> inline void store_first(T* p, Float x, int count) { detail::store_lanes(p, x, count); }

// The values of x after a round trip through T, for x that is not NaN (a NaN gives anything).
template <class T> inline Float rounded_to(Float x) {
    for (int i = 0; i < kWidth; ++i) x[i] = to_float(Element<T>::store(x[i]));
    return x;
}

// rows[r] lane c becomes rows[c] lane r.
inline void transpose(Float (&rows)[kWidth]) {
    for (int r = 0; r < kWidth; ++r)
        for (int c = r + 1; c < kWidth; ++c) {
            const float upper = rows[r][c];
            rows[r][c] = rows[c][r];
            rows[c][r] = upper;
        }
}

}  // namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET
