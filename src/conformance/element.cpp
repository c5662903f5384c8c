// Conversions between double and the element types; see element.hpp. 16-bit types go through their definition (significand bits, smallest
// exponent, largest value) and not through bit tricks of float.
#include "conformance/element.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tilewise::conformance {

namespace {

struct Format {
    int significand_bits;  // the hidden one included
    int min_exponent;      // of the smallest normal number
    int max_exponent;
};

Format format_of(DType dtype) {
    switch (dtype) {
    case DType::kF16: return {11, -14, 15};
    case DType::kBF16: return {8, -126, 127};
    case DType::kF32: return {24, -126, 127};
    default: return {53, -1022, 1023};
    }
}

uint16_t bits_of_16(DType dtype, double value) {
    const Format format = format_of(dtype);
    const int fraction_bits = format.significand_bits - 1, exponent_bits = 15 - fraction_bits;
    const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
    const auto infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << fraction_bits);
    if (std::isnan(value)) return static_cast<uint16_t>(sign | infinity | (1 << (fraction_bits - 1)));
    if (std::isinf(value)) return static_cast<uint16_t>(sign | infinity);
    if (value == 0) return sign;
    const int exponent = std::max(std::ilogb(value), format.min_exponent);
    const auto significand = static_cast<int>(std::ldexp(std::fabs(value), fraction_bits - exponent));
    // The hidden bit of a normal number adds one to the exponent field; a subnormal has none and a field of zero.
    return static_cast<uint16_t>(sign | (((exponent - format.min_exponent) << fraction_bits) + significand));
}

double value_of_16(DType dtype, uint16_t bits) {
    const Format format = format_of(dtype);
    const int fraction_bits = format.significand_bits - 1;
    const int field = (bits & 0x7fff) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (field == (1 << (15 - fraction_bits)) - 1)
        return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                             : sign * std::numeric_limits<double>::infinity();
    if (field == 0) return sign * std::ldexp(fraction, format.min_exponent - fraction_bits);
    return sign * std::ldexp(fraction + (1 << fraction_bits), field - 1 + format.min_exponent - fraction_bits);
}

template <class T> T read(const void* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}
template <class T> void write(void* at, T value) { std::memcpy(at, &value, sizeof value); }

constexpr uint16_t kMarkF16 = 0x7e5a;
constexpr uint16_t kMarkBF16 = 0x7fda;
constexpr uint32_t kMarkF32 = 0x7fda5a5a;
constexpr uint64_t kMarkF64 = 0x7ffda5a5a5a5a5a5;
constexpr int32_t kMarkI32 = -1;

}  // namespace

double rounded(DType dtype, double value) {
    if (!is_floating(dtype) || dtype == DType::kF64 || !std::isfinite(value) || value == 0) return value;
    const Format format = format_of(dtype);
    const auto bits = std::bit_cast<uint64_t>(value);
    const int field = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
    if (field >= format.min_exponent && field < format.max_exponent) {  // normal before and after: round the bits
        const int dropped = 53 - format.significand_bits;
        const uint64_t half_less = (uint64_t{1} << (dropped - 1)) - 1, odd = bits >> dropped & 1;
        return std::bit_cast<double>((bits + half_less + odd) >> dropped << dropped);
    }
    const int exponent = std::max(std::ilogb(value), format.min_exponent);
    const int last_bit = exponent - (format.significand_bits - 1);
    const double nearest = std::ldexp(std::nearbyint(std::ldexp(value, -last_bit)), last_bit);
    if (std::fabs(nearest) >= std::ldexp(1.0, format.max_exponent + 1))
        return std::copysign(std::numeric_limits<double>::infinity(), value);
    return nearest;
}

double unit_roundoff(DType dtype) {
    return is_floating(dtype) ? std::ldexp(1.0, -format_of(dtype).significand_bits) : 0;
}

double tiny_roundoff(DType dtype) {
    if (!is_floating(dtype)) return 0;
    const Format format = format_of(dtype);
    return std::ldexp(1.0, dtype == DType::kF16 ? format.min_exponent - format.significand_bits : format.min_exponent);
}

bool is_floating(DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF64;
}

const char* name_of(DType dtype) {
    switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
    case DType::kF64: return "f64";
    case DType::kI32: return "i32";
    case DType::kI64: return "i64";
    case DType::kBool: return "bool";
    case DType::kBits: return "bits";
    case DType::kNone: break;
    }
    return "none";
}

void store(DType dtype, void* at, double value) {
    switch (dtype) {
    case DType::kF32: write(at, static_cast<float>(value)); break;
    case DType::kF64: write(at, value); break;
    case DType::kF16:
    case DType::kBF16: write(at, bits_of_16(dtype, value)); break;
    case DType::kI32: write(at, static_cast<int32_t>(value)); break;
    case DType::kI64: write(at, static_cast<int64_t>(value)); break;
    case DType::kBool:
    case DType::kBits: write(at, static_cast<uint8_t>(value)); break;
    case DType::kNone: break;
    }
}

double load(DType dtype, const void* at) {
    switch (dtype) {
    case DType::kF32: return static_cast<double>(read<float>(at));
    case DType::kF64: return read<double>(at);
    case DType::kF16:
    case DType::kBF16: return value_of_16(dtype, read<uint16_t>(at));
    case DType::kI32: return read<int32_t>(at);
    case DType::kI64: return static_cast<double>(read<int64_t>(at));
    case DType::kBool:
    case DType::kBits: return read<uint8_t>(at);
    case DType::kNone: break;
    }
    return 0;
}

void store_unwritten_mark(DType dtype, void* at) {
    switch (dtype) {
    case DType::kF32: write(at, kMarkF32); break;
    case DType::kF64: write(at, kMarkF64); break;
    case DType::kF16: write(at, kMarkF16); break;
    case DType::kBF16: write(at, kMarkBF16); break;
    case DType::kI32: write(at, kMarkI32); break;
    default: std::memset(at, 0xff, static_cast<size_t>(size_of(dtype))); break;
    }
}

bool is_unwritten_mark(DType dtype, const void* at) {
    uint64_t mark = 0, value = 0;
    const auto bytes = static_cast<size_t>(size_of(dtype));
    store_unwritten_mark(dtype, &mark);
    std::memcpy(&value, at, bytes);
    return value == mark;
}

}  // namespace tilewise::conformance
