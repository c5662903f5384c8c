// Vectors of the portable kernels: four floats, which every 64-bit processor has; the compiler finds the instructions.
// Each lanes_SET.hpp gives kernels.cpp the same names; functions are static so that no other source can end up with them.
#pragma once

#include <string.h>

#include <cstddef>
#include <cstdint>

namespace tilewise::generate::base {

constexpr std::int64_t kLanes = 4;
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));
typedef std::int32_t IntVector __attribute__((vector_size(kLanes * sizeof(std::int32_t))));

static inline IntVector widen_unsigned(const std::byte* at) {
    std::uint8_t b[kLanes];
    memcpy(b, at, sizeof b);
    return IntVector{b[0], b[1], b[2], b[3]};
}

static inline IntVector widen_signed(const std::byte* at) {
    std::int8_t b[kLanes];
    memcpy(b, at, sizeof b);
    return IntVector{b[0], b[1], b[2], b[3]};
}

}  // namespace tilewise::generate::base
