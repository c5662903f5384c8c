// Which tensors allow 16-byte accesses, and what the kernels of this folder share on the host.
#pragma once

#include "core/tensor.hpp"

namespace tilewise::cuda {

// True where every row of the last axis begins at a multiple of `bytes`, has elements side by side, and is a whole number of such
// pieces long.
inline bool allows_access_of(const TensorDesc& tensor, int bytes) {
    if (!tensor.given()) return true;
    const int64_t size = size_of(tensor.dtype);
    const int last = tensor.rank - 1;
    if (tensor.alignment < bytes || tensor.dim(last) * size % bytes != 0) return false;
    if (tensor.dim(last) != 1 && tensor.step(last) != 1) return false;
    for (int axis = 0; axis < last; ++axis)
        if (tensor.dim(axis) != 1 && tensor.step(axis) * size % bytes != 0) return false;
    return true;
}
inline bool allows_vectors(const TensorDesc& tensor) { return allows_access_of(tensor, 16); }

// Lanes of a warp that share a row of `dim` elements, `of_access` at a time: a power of two.
inline int32_t lanes_of_row(int64_t dim, int of_access) {
    int32_t lanes = 4;
    while (lanes < 32 && lanes * of_access < dim) lanes *= 2;
    return lanes;
}

}  // namespace tilewise::cuda
