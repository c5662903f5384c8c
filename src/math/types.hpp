// Scalar types of the library and their conversions, for host, CUDA and run-time compiled code.
//
// bf16 and f16 are stored as their bits; arithmetic happens in float. Conversions to 16 bits round to nearest even and keep
// NaN a NaN. The functions are always inlined: kernel sources are compiled once per instruction set, and an out-of-line
// copy built with AVX-512 must never be the one that the linker keeps for a machine without it.
#pragma once

#if !defined(__CUDACC_RTC__)
#    include <cmath>
#    include <cstdint>
#endif

#if defined(__CUDACC__)
#    define TILEWISE_HD __host__ __device__ __forceinline__ constexpr
#elif defined(__GNUC__)
#    define TILEWISE_HD [[gnu::always_inline]] inline constexpr
#else
#    define TILEWISE_HD inline constexpr
#endif

namespace tilewise {

// Values are those of tilewise_dtype in the C header.
enum class DType : uint8_t { kNone, kF32, kF16, kBF16, kF64, kI32, kI64, kBool, kBits };

// Bytes of one element; kBits packs eight keys in a byte and counts its strides in bytes.
TILEWISE_HD int64_t size_of(DType type) {
    switch (type) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kBool:
    case DType::kBits: return 1;
    case DType::kNone: break;
    }
    return 0;
}

struct BF16 {
    uint16_t bits;
};
struct F16 {
    uint16_t bits;
};

#if !defined(__CUDA_ARCH__)
TILEWISE_HD uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
TILEWISE_HD float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
#else
__device__ __forceinline__ uint32_t bits_of(float x) { return __float_as_uint(x); }
__device__ __forceinline__ float float_of(uint32_t bits) { return __uint_as_float(bits); }
#endif

TILEWISE_HD float to_float(float x) { return x; }
TILEWISE_HD float to_float(BF16 x) { return float_of(static_cast<uint32_t>(x.bits) << 16); }
TILEWISE_HD float to_float(F16 x) {
    const uint32_t sign = (x.bits & 0x8000u) << 16;
    const uint32_t magnitude = x.bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return float_of(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    // A half's exponent field read as a float's is 112 too small; the product repairs it and makes subnormals exact.
    return float_of(sign | bits_of(float_of(magnitude << 13) * float_of(0x77800000u)));
}

TILEWISE_HD BF16 to_bf16(float x) {
    const uint32_t bits = bits_of(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
    return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
TILEWISE_HD F16 to_f16(float x) {
    const uint32_t bits = bits_of(x);
    const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
    if (magnitude >= 0x477ff000u)
        return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds past the largest half, 65504
    if (magnitude < 0x38800000u) {  // a subnormal half: let the float adder do the rounding at 2^-24
        const uint32_t rounded = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
        return {static_cast<uint16_t>(sign | rounded)};
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return {static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)))};
}

// One place where a generic kernel names its element: Element<T>::load gives float, Element<T>::store rounds once.
template <class T> struct Element;
template <> struct Element<float> {
    static constexpr DType kType = DType::kF32;
    TILEWISE_HD static float load(float x) { return x; }
    TILEWISE_HD static float store(float x) { return x; }
};
template <> struct Element<BF16> {
    static constexpr DType kType = DType::kBF16;
    TILEWISE_HD static float load(BF16 x) { return to_float(x); }
    TILEWISE_HD static BF16 store(float x) { return to_bf16(x); }
};
template <> struct Element<F16> {
    static constexpr DType kType = DType::kF16;
    TILEWISE_HD static float load(F16 x) { return to_float(x); }
    TILEWISE_HD static F16 store(float x) { return to_f16(x); }
};

template <class T> TILEWISE_HD T min_of(T a, T b) { return b < a ? b : a; }
template <class T> TILEWISE_HD T max_of(T a, T b) { return a < b ? b : a; }
template <class T> TILEWISE_HD T clamp_to(T x, T low, T high) { return min_of(max_of(x, low), high); }
TILEWISE_HD int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
TILEWISE_HD int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

TILEWISE_HD float negative_infinity() { return -__builtin_huge_valf(); }

}  // namespace tilewise
