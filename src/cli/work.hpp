// How much a call computes and moves, by one formula for every kernel:
//
//   pairs   (query head, query, key) triples that the mask's position rules let see each other; boolean masks and key ranges
//           are not subtracted, since they do not save a fixed share of the work
//   FLOP    forward and decode: 2 (d + dv) a pair       Q K^T and P V
//           backward: (6 d + 4 dv) a pair               Q K^T again, dP, dV, dQ, dK
//           append and combine: 0; their rate is given in bytes
//   bytes   every given tensor once (an appended cache: only the new rows, read and written)
#pragma once

#include <cstdint>

#include "synthetic.hpp"

namespace tilewise::cli {

struct Work {
    double flops = 0;
    double bytes = 0;
};
Work work_of(const ProblemFlags& flags, const Call& call);

// FLOPs of an attention call on dense sequences, for a call that does not come from flags.
double forward_flops(const Attention& attention);

// Keys that the rows of one sequence see by position.
int64_t visible_pairs(const Mask& mask, int64_t seqlen_q, int64_t seqlen_k);

}  // namespace tilewise::cli
