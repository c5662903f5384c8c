// Rounding of floats to the 16-bit types that a cache can keep, to nearest with ties to even, and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tilewise::generate {

enum class Narrow { kF16, kBF16 };

void to_narrow(Narrow type, std::span<const float> from, std::uint16_t* to);
void from_narrow(Narrow type, const std::uint16_t* from, std::span<float> to);

}  // namespace tilewise::generate
