// Chooses the table of tile functions at run time.
#pragma once

#include "core/device.hpp"
#include "cpu/simd/tile_ops.hpp"

namespace tilewise::cpu {

// True when this build holds the instruction set's functions and this machine (CPU and operating system) runs them.
bool can_run(Isa isa);
// The functions of `isa`; needs can_run(isa). kScalar always can.
const TileOps& tile_ops(Isa isa);

}  // namespace tilewise::cpu
