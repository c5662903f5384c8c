// Rotary position embedding of one row (Su et al., "RoFormer", equation 34), in fp32:
//   (x0, x1) -> (x0 cos - x1 sin, x0 sin + x1 cos)
// for rotary_dim / 2 pairs; the rest of the row is copied by the caller. Pairs are (2t, 2t + 1) when interleaved, else (t, t + rotary_dim / 2).
#pragma once

#include "math/types.hpp"

namespace tilewise {

struct RotaryPair {
    int32_t first;
    int32_t second;
};
TILEWISE_HD RotaryPair rotary_pair(int32_t t, int32_t rotary_dim, bool interleaved) {
    return interleaved ? RotaryPair{2 * t, 2 * t + 1} : RotaryPair{t, t + rotary_dim / 2};
}
template <class Real> struct Rotated {
    Real first;
    Real second;
};
template <class Real> TILEWISE_HD Rotated<Real> rotate(Real x0, Real x1, Real cos, Real sin) {
    return {x0 * cos - x1 * sin, x0 * sin + x1 * cos};
}
// Position of query row t: its own place when the mask is positional, else every row stands at the first new place.
TILEWISE_HD int64_t rotary_query_position(int64_t base, int64_t row, bool positional_mask) {
    return positional_mask ? base + row : base;
}

}  // namespace tilewise
