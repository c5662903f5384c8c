// The start of every registry row of the CUDA backend.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/registry.hpp"
#include "core/validate.hpp"

namespace tilewise::cuda {

// A row for compute capability 8.0 and up that takes every head dimension and feature; the caller narrows it and adds its functions.
inline KernelRow cuda_row(std::string name, Op op, std::vector<DType> dtypes) {
    KernelRow row;
    row.name = std::move(name);
    row.device = DeviceKind::kCuda;
    row.op = op;
    row.dtypes = std::move(dtypes);
    row.max_head_dim = kMaxHeadDim;
    row.max_head_dim_v = kMaxHeadDimV;
    row.features = "all";
    row.isa = 80;
    return row;
}

}  // namespace tilewise::cuda
