// Appending to a cache on the device: an operation of its own, and the first step of a decode. What it computes is in append.cu.
#pragma once

#include "core/registry.hpp"

namespace tilewise::cuda {

KernelRow append_row();

}  // namespace tilewise::cuda
