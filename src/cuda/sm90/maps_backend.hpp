// Tensor maps of the copy engine: which tensors can have one, and how they are made.
#pragma once

#include <cuda.h>

#include <string>

#include "core/plan.hpp"
#include "core/status.hpp"
#include "core/tensor.hpp"
#include "core/view.hpp"

namespace tilewise::cuda::sm90 {

// Empty where q, k, v can be read by the copy engine: unit stride along the last axis, base and strides multiples of 16 bytes, no expanded axis.
std::string map_refusal(const char* argument, const TensorDesc& tensor);

// Elements of a box: columns, heads, rows.
struct Box {
    int32_t columns = 64;
    int32_t heads = 1;
    int32_t rows = 1;
};
// The map of (batch, row, head, column), ragged (row, head, column) or paged (page, slot, head, column); lines of 128 bytes are swizzled.
Status make_map(const char* argument, const TensorDesc& tensor, const HeadTensor& view, const Box& box,
                CUtensorMap* map);

}  // namespace tilewise::cuda::sm90
