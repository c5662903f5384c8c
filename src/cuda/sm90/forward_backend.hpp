// The forward rows of compute capability 9.0.
#pragma once

#include "core/registry.hpp"

namespace tilewise::cuda::sm90 {

void register_forward_rows(Registry& registry);

}  // namespace tilewise::cuda::sm90
