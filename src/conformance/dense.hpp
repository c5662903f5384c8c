// Attention of one query head on one sequence with everything spelt out: full score matrices, a visibility flag and an additive term a pair. The
// tests' own second opinion, in three forms of the same computation:
//
//   exact     in double: what the reference kernels are judged by
//   naive     in float with P and dS rounded to the element type, as an unfused program of the same precision computes it
//   rounding  for each result, how much the roundings that the contract allows can move it, to first order
//
// All matrices are row-major: q (rows, d), k (keys, d), v (keys, dv), grad_o (rows, dv), pairs (rows, keys).
#pragma once

#include <cstdint>
#include <vector>

#include "tilewise/tilewise.hpp"

namespace tilewise::conformance {

struct DenseSizes {
    int64_t rows = 0, keys = 0, d = 0, dv = 0;
};

struct DenseScore {
    double scale = 1;
    double softcap = 0;
    double sink = 0;        // -inf without one
    double keep_scale = 1;  // 1 / (1 - dropout_p)
};

struct DenseHead {
    DenseSizes sizes;
    DenseScore score;
    std::vector<double> q, k, v;
    std::vector<double> additive;  // ALiBi and bias; empty: none
    std::vector<uint8_t> visible;
    std::vector<uint8_t> keep;  // empty: all
    bool is_backward = false;
    std::vector<double> grad_o, grad_lse;  // grad_lse empty: 0
};

// grad_k and grad_v of this head alone; the group's are the sums over its heads.
struct DenseResult {
    std::vector<double> o, lse;
    std::vector<double> grad_q, grad_k, grad_v, grad_s;
    double grad_sink = 0;
};

DenseResult exact_attention(const DenseHead& head);
DenseResult naive_attention(const DenseHead& head, DType element);

// Relative sizes of one rounding.
struct Roundings {
    double element = 0;  // of q, k, v, P, dS, outputs
    double compute = 0;  // of sums, exponentials, lse
    double product = 0;  // of a dP, relative to the sum of its terms' magnitudes
    double score = 0;    // of a score, relative to the sum of its terms' magnitudes
    double tiny = 0;     // of a P or dS, absolute: what is lost below the smallest normal number
};
// In units of the results; `exact` is exact_attention(head).
DenseResult rounding_of(const DenseHead& head, const DenseResult& exact, const Roundings& roundings);

}  // namespace tilewise::conformance
