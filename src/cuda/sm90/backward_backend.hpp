// The backward rows of compute capability 9.0.
#pragma once

#include "core/registry.hpp"

namespace tilewise::cuda::sm90 {

void register_backward_rows(Registry& registry);  // in one pass
void register_two_pass_rows(Registry& registry);

}  // namespace tilewise::cuda::sm90
