// Architectures that this library has no vector kernels for: plain code, and a name from elsewhere.
#include "core/detect_isa.hpp"

namespace tilewise {

void detect_isa(CpuInfo&) {}
std::string cpu_brand() { return {}; }

}  // namespace tilewise
