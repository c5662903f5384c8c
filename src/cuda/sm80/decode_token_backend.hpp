// Which problems the decode of one token a sequence serves, and what its launch hands to the kernel of decode_token.cuh.
#pragma once

#include <string>

#include "core/problem.hpp"
#include "cuda/sm80/decode_token_params.hpp"

namespace tilewise::cuda::sm80 {

// Empty: one query a sequence that sees one interval of keys, scores that are only scaled, rows that 16-byte accesses reach.
std::string token_refusal(const Problem& problem);

// `params` of a problem that is served, for one block of columns of v. `unit_keys`: what a block's warps take together.
TokenParams token_params_of(const ForwardParams& params, int32_t unit_keys, bool clustered);

}  // namespace tilewise::cuda::sm80
