// What the host sides of the backward rows share.
#pragma once

#include <initializer_list>
#include <string>

#include "cuda/shared/parts.hpp"
#include "cuda/sm90/bwd_rows_params.hpp"
#include "cuda/sm90/maps_backend.hpp"

namespace tilewise::cuda::sm90 {

// Why tensors cannot be read and written in bulk, or the gradient of a bias not be made here; empty: nothing is wrong.
std::string bulk_refusal(const Problem& problem, const DeviceInfo& device);

struct BoxMap {
    Arg arg;
    const HeadTensor& tensor;
    Box box;
    CUtensorMap* map;
};
Status make_maps(const Problem& problem, std::initializer_list<BoxMap> maps);

int64_t row_tiles_of(const Step& step, int32_t tile_m);
// (sequence, head) pairs whose key tiles are interleaved, longest first, where rows are positional; else one head follows the other.
int64_t backward_section_of(const Step& step);
// What the prologue fills, `panels` of 64 columns of dq (0: no dq).
void add_row_blocks(WorkspaceLayout& layout, const Step& step, int32_t tile_m, int32_t panels);

struct BulkBackwardShape {
    int32_t tile_m = 0;     // query rows of a step
    int32_t tile_keys = 0;  // keys of a block
    int32_t panels = 0;     // of dq in the workspace
    bool has_modifiers = false;
};
// Everything but the maps of Q's and dO's row blocks; the caller has made the device current.
Status fill_backward_params(const Step& step, const Arguments& arguments, const BulkBackwardShape& shape,
                            BulkBackwardParams* params);
// delta, lse, zeros where kernels sum, grad_sink, and zeros in the gradients of what no sequence uses (but grad_q, where there is a dq).
Status launch_bulk_prologue(const BulkBackwardParams& params, const BulkBackwardShape& shape, const Step& step,
                            const Arguments& arguments);

}  // namespace tilewise::cuda::sm90
