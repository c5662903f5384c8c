// What only the architecture knows of a CPU. CMake compiles one of detect_isa_*.cpp.
#pragma once

#include <string>

#include "core/device.hpp"

namespace tilewise {

// Fills isa and features.
void detect_isa(CpuInfo& cpu);
// The name that the CPU gives itself, as it pads it; empty where it has none.
std::string cpu_brand();

}  // namespace tilewise
