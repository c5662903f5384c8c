// Merging of partial outputs by their log-sum-exp: the operation combine, and the second half of a forward that splits the keys.
#pragma once

#include "core/registry.hpp"
#include "cuda/common/params.hpp"

namespace tilewise::cuda {

// partial_o (splits, b, sq, h, dv), partial_lse (splits, b, h, sq) -> o (b, sq, h, dv), lse (b, h, sq); ragged likewise.
KernelRow combine_row();

// params.partial -> o and lse of params.view, the sink added once. params.tiles.num_splits says how many parts there are. Rows
// that no sequence uses are not written.
Status merge_splits(const ForwardParams& params, const Step& step, const Arguments& arguments);

}  // namespace tilewise::cuda
