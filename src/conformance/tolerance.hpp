// The rule by which every kernel is judged, stated once.
//
// The error of a result is counted in units of its `rounding`: how far the roundings that the contract allows can move that element to first
// order (dense_rounding.cpp). Over one output tensor, the largest error of a kernel may be at most kNaiveFactor times that of a naive
// computation in the same precision, both against the exact result in double, and at most kLeastUnits where the naive one was
// lucky. Counting in units makes this a rule for each element: a small one beside large ones is held to its own size.
//
// Measured over all cases and CPU kernels: naive 0.1 to 1.2 units, kernels 0.4 to 1.7 times that.
#pragma once

namespace tilewise::conformance {

constexpr double kNaiveFactor = 2.0;
constexpr double kLeastUnits = 1.0;
// Thousands of small random problems reach further into the tail of both errors than the list of cases does; a fault is far beyond it.
// Seen in 20,000: once 1.95, the gradient of a sink from f16 inputs, a sum of 35 terms of both signs.
constexpr double kRandomSlack = 2.0;
// f64 has no naive computation of lower precision; its unit already bounds every error.
constexpr double kDoubleUnits = 4.0;

}  // namespace tilewise::conformance
