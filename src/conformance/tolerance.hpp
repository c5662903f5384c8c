// The rule by which every kernel is judged, stated once.
//
// The error of a result is counted in units of its `rounding`: how far the roundings that the contract allows can move that element to first
// order (dense_rounding.cpp). Over one output tensor, the largest error of a kernel may be at most kNaiveFactor times that of a naive
// computation in the same precision, both against the exact result in double, and at most kLeastUnits where the naive one was
// lucky. Counting in units makes this a rule for each element: a small one beside large ones is held to its own size.
//
// Measured on the CPU kernels: see docs/numerics.md.
#pragma once

namespace tilewise::conformance {

constexpr double kNaiveFactor = 2.0;
constexpr double kLeastUnits = 1.0;
// f64 has no naive computation of lower precision; its unit already bounds every error.
constexpr double kDoubleUnits = 4.0;

}  // namespace tilewise::conformance
