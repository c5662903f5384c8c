// Single elements as double and back, for filling inputs and comparing outputs. 16-bit values round to nearest even.
// The program uses the public headers only, so it has these conversions of its own; they also make the comparison with the
// oracle independent of the library's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tilewise/tilewise.hpp"

namespace tilewise::cli {

inline float float_from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t bf16_from_float(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float float_from_f16(uint16_t bits) {
    const float sign = bits & 0x8000 ? -1.0f : 1.0f;
    const int exponent = bits >> 10 & 0x1f;
    const int fraction = bits & 0x3ff;
    if (exponent == 0x1f) return fraction != 0 ? std::nanf("") : sign * HUGE_VALF;
    // Subnormals have no implicit leading one and the exponent of the smallest normal number.
    const int significand = exponent == 0 ? fraction : fraction | 0x400;
    return sign * std::ldexp(static_cast<float>(significand), (exponent == 0 ? 1 : exponent) - 25);
}

inline uint16_t f16_from_float(float value) {
    const auto sign = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16 & 0x8000);
    if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00);
    const float magnitude = std::fabs(value);
    if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00);  // rounds past 65504
    // A step is the distance of neighbours at this magnitude; nearbyint rounds to even, and a carry into the next exponent
    // comes out right because the encoding is continuous.
    const int exponent = magnitude < 0x1p-14f ? -14 : std::ilogb(magnitude);
    const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
    return static_cast<uint16_t>(sign | (steps + (static_cast<uint32_t>(exponent + 14) << 10)));
}

inline double load_element(const void* data, DType dtype, int64_t offset) {
    switch (dtype) {
    case DType::kF32: return static_cast<const float*>(data)[offset];
    case DType::kF64: return static_cast<const double*>(data)[offset];
    case DType::kF16: return float_from_f16(static_cast<const uint16_t*>(data)[offset]);
    case DType::kBF16: return float_from_bf16(static_cast<const uint16_t*>(data)[offset]);
    case DType::kI32: return static_cast<const int32_t*>(data)[offset];
    default: return std::nan("");
    }
}

inline void store_element(void* data, DType dtype, int64_t offset, double value) {
    switch (dtype) {
    case DType::kF32: static_cast<float*>(data)[offset] = static_cast<float>(value); break;
    case DType::kF64: static_cast<double*>(data)[offset] = value; break;
    case DType::kF16: static_cast<uint16_t*>(data)[offset] = f16_from_float(static_cast<float>(value)); break;
    case DType::kBF16: static_cast<uint16_t*>(data)[offset] = bf16_from_float(static_cast<float>(value)); break;
    case DType::kI32: static_cast<int32_t*>(data)[offset] = static_cast<int32_t>(value); break;
    case DType::kBool: static_cast<uint8_t*>(data)[offset] = value != 0 ? 1 : 0; break;
    default: break;
    }
}

}  // namespace tilewise::cli
