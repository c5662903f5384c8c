// What the rows of the tiled backend have in common; see tiled.hpp.
#include "cpu/tiled.hpp"

#include "core/cost.hpp"

namespace tilewise::cpu {

std::string refuse_tiled(const KernelRow&, const Problem&, const DeviceInfo&) { return {}; }

double cost_tiled(const Step& step, const DeviceInfo& device) { return 1e-6 + roofline_seconds(step, device); }

}  // namespace tilewise::cpu
