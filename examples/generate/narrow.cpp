// Bit arithmetic; NaN stays NaN, and what is too large for a half becomes infinity.
#include "narrow.hpp"

#include <bit>
#include <cmath>

#include "kernels.hpp"

namespace tilewise::generate {

namespace {

constexpr std::uint32_t kInfinity = 0x7f800000;

std::uint16_t to_half(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = bits >> 16 & 0x8000;
    const std::uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > kInfinity) {
        return static_cast<std::uint16_t>(sign | 0x7e00);
    }
    if (std::fabs(value) < 0x1p-14f) {  // subnormal halves are the multiples of 2^-24
        return static_cast<std::uint16_t>(sign |
                                          static_cast<std::uint32_t>(std::nearbyint(std::fabs(value) * 0x1p24f)));
    }
    constexpr std::uint32_t kRebias = (127 - 15) << 10;
    const std::uint32_t kept = magnitude >> 13;
    const std::uint32_t dropped = magnitude & 0x1fff;
    const bool up = dropped > 0x1000 || (dropped == 0x1000 && (kept & 1) != 0);
    const std::uint32_t half = kept - kRebias + (up ? 1 : 0);
    return static_cast<std::uint16_t>(sign | (half < 0x7c00 ? half : 0x7c00));
}

std::uint16_t to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffff) > kInfinity) {
        return static_cast<std::uint16_t>(bits >> 16 | 0x40);
    }
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

void to_narrow(Narrow type, std::span<const float> from, std::uint16_t* to) {
    for (const float value : from) {
        *to++ = type == Narrow::kF16 ? to_half(value) : to_bf16(value);
    }
}

void from_narrow(Narrow type, const std::uint16_t* from, std::span<float> to) {
    if (type == Narrow::kF16) {
        kernels().dequantize(TensorType::kF16, reinterpret_cast<const std::byte*>(from),
                             static_cast<std::int64_t>(to.size()), to.data());
        return;
    }
    for (float& value : to) {
        value = std::bit_cast<float>(static_cast<std::uint32_t>(*from++) << 16);
    }
}

}  // namespace tilewise::generate
