// Element types as the tests see them: every value is a double, rounded to the element type where memory holds it. Written apart from the
// library's own conversions, so that a fault there shows.
#pragma once

#include <cstdint>

#include "tilewise/tilewise.hpp"

namespace tilewise::conformance {

// Nearest value of the type, ties to even; beyond its range an infinity. NaN stays NaN. Integer types: the value itself.
double rounded(DType dtype, double value);
// Half the distance from 1 to the next value: the largest relative error of one rounding.
double unit_roundoff(DType dtype);
// Largest absolute error of one rounding below the smallest normal number. Types with the exponents of f32 may flush to zero there, as
// vector instructions for bf16 do.
double tiny_roundoff(DType dtype);
bool is_floating(DType dtype);
const char* name_of(DType dtype);

// One element in memory; the value must be one of the type's (see rounded).
void store(DType dtype, void* at, double value);
double load(DType dtype, const void* at);
// A NaN that no arithmetic makes: it marks elements that nobody has written. Integer types and masks get all ones.
void store_unwritten_mark(DType dtype, void* at);
bool is_unwritten_mark(DType dtype, const void* at);

}  // namespace tilewise::conformance
