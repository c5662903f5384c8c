// The driver's function that describes a tensor to the bulk copy engine of Hopper and later.
#pragma once

#include <cudaTypedefs.h>

#include "core/status.hpp"

namespace tilewise::cuda {

using TensorMapEncoder = PFN_cuTensorMapEncodeTiled_v12000;

// cuTensorMapEncodeTiled, found at the first call. Where there is no driver, or one that lacks it, a status says so.
Status tensor_map_encoder(TensorMapEncoder* encoder);

}  // namespace tilewise::cuda
