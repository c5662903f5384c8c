// Appends new keys and values to a cache, the first step of a decode and an operation of its own:
//
//   k_new (b, n, hk, d), v_new (b, n, hk, dv) -> rows cache_seqlens[b] .. + n - 1 of k, v (dense or paged), k rotated on the way
//   q (b, sq, h, d) -> q_rotated, and cache_seqlens + n -> total_seqlens, where the plan asks for them
//
// Positions and rows are those of the cache, so left padding shifts neither. Rotation is in fp32 (fp64 for f64 tensors), rounded
// once. One implementation serves as product and oracle: there is nothing to tile.
#pragma once

#include "core/plan.hpp"

namespace tilewise::cpu {

void layout_append(Step& step, const DeviceInfo& device);
double cost_append(const Step& step, const DeviceInfo& device);
Status launch_append(const Step& step, const Arguments& arguments);

}  // namespace tilewise::cpu
