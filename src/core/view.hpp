// (Step, Arguments) -> the pointers and strides that kernels read; see math/view.hpp.
#pragma once

#include "core/plan.hpp"
#include "math/view.hpp"

namespace tilewise {

// Stride of an axis as kernels take it: 0 where the axis has one element, whatever the caller wrote there.
inline int64_t stride_of(const TensorDesc& t, int axis) { return t.dim(axis) == 1 ? 0 : t.step(axis); }

AttentionView make_attention_view(const Step& step, const Arguments& arguments);
HeadTensor head_tensor(const Step& step, const Arguments& arguments, Arg arg);
RowTensor row_tensor(const Step& step, const Arguments& arguments, Arg arg);
PairTensor pair_tensor(const Step& step, const Arguments& arguments, Arg arg);
IntVector int_vector(const Step& step, const Arguments& arguments, Arg arg);
// The pointer of a tensor for this step: the caller's, or its place in the workspace.
void* pointer_of(const Step& step, const Arguments& arguments, Arg arg);

}  // namespace tilewise
