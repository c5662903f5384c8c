// See bwd_parts_backend.hpp.
#include "cuda/sm90/bwd_parts_backend.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/validate.hpp"
#include "core/view.hpp"
#include "core/workspace.hpp"
#include "cuda/common/launch.hpp"
#include "cuda/common/memory.hpp"
#include "cuda/shared/bwd_prologue.hpp"
#include "cuda/sm90/maps_backend.hpp"
#include "cuda/sm90/traits.hpp"

namespace tilewise::cuda::sm90 {

namespace {

constexpr int64_t kSectionBytes = int64_t{32} << 20;  // q, dO and dQ of a section

Status make_first_maps(const Step& step, const BulkBackwardShape& shape, BulkBackwardParams* params) {
    const AttentionView& view = params->base.view;
    const Gradients& grad = params->base.grad;
    const Box rows = {kPanelColumns, 1, shape.tile_m}, keys = {kPanelColumns, 1, shape.tile_keys};
    const Box group = {kPanelColumns, 1, kGroupRows};
    return make_maps(step.problem, {{Arg::kQ, view.q, rows, &params->q},
                                    {Arg::kK, view.k, keys, &params->k},
                                    {Arg::kV, view.v, keys, &params->v},
                                    {Arg::kGradO, grad.o, rows, &params->grad_o},
                                    {Arg::kGradK, grad.k, group, &params->grad_k},
                                    {Arg::kGradV, grad.v, group, &params->grad_v}});
}

}  // namespace

Status make_maps(const Problem& problem, std::initializer_list<BoxMap> maps) {
    for (const BoxMap& x : maps)
        if (Status status = make_map(name_of(x.arg), problem[x.arg], x.tensor, x.box, x.map); !status.ok())
            return status;
    return {};
}

std::string bulk_refusal(const Problem& problem, const DeviceInfo& device) {
    if (device.cuda.compute_capability != 90) return "its instructions exist on compute capability 9.0 only";
    for (const Arg arg : {Arg::kQ, Arg::kK, Arg::kV, Arg::kGradO, Arg::kGradK, Arg::kGradV})
        if (std::string reason = map_refusal(name_of(arg), problem[arg]); !reason.empty()) return reason;
    for (const Arg arg : {Arg::kO, Arg::kGradQ})
        if (!allows_vectors(problem[arg]))
            return fmt::format("{}: base, strides and rows must be multiples of 16 bytes", name_of(arg));
    if (problem.has(Arg::kGradBias) && !stores_grad_bias(problem, sizes_of(problem)))
        return "grad_bias: only that of a bias (batch, heads, rows, keys) without softcap; the kernels of sm80 sum "
               "over "
               "the other axes";
    return {};
}

int64_t row_tiles_of(const Step& step, int32_t tile_m) {
    const Sizes& sizes = step.sizes;
    return step.problem.has(Arg::kCuSeqlensQ) ? sizes.total_q / tile_m + std::max<int64_t>(sizes.batch, 1)
                                              : sizes.batch * ceil_div(sizes.max_seqlen_q, tile_m);
}

int64_t backward_section_of(const Step& step) {
    return is_positional(step.problem.mask) ? key_heads_in(kSectionBytes, step) : 1;
}

void add_row_blocks(WorkspaceLayout& layout, const Step& step, int32_t tile_m, int32_t panels) {
    constexpr int64_t kFloat = sizeof(float);
    const int64_t of_head = row_tiles_of(step, tile_m) * tile_m, rows = of_head * step.sizes.num_heads_q;
    layout.add("delta", rows * kFloat);
    layout.add("lse_log2", rows * kFloat);
    if (panels > 0) layout.add("dq", rows * panels * kPanelColumns * kFloat);
    if (panels > 0 && step.problem.exec.deterministic) layout.add("turns", rows / tile_m * int64_t{sizeof(int32_t)});
    add_sink_block(layout, step, of_head);
}

Status fill_backward_params(const Step& step, const Arguments& arguments, const BulkBackwardShape& shape,
                            BulkBackwardParams* params) {
    BackwardParams& base = params->base;
    base = backward_params(step, arguments);
    base.dims = dims_of(step);
    base.tiles = key_tile_map(step, shape.tile_keys);
    base.score_scale = score_scale_of(step, shape.has_modifiers);
    RowTiles& rows = params->rows;
    rows.lse_log2 = base.scratch.lse_log2;
    rows.delta = base.scratch.delta;
    if (shape.panels > 0) rows.dq = arguments.at<float>(step.block("dq"));
    if (shape.panels > 0 && step.problem.exec.deterministic) rows.turns = arguments.at<int32_t>(step.block("turns"));
    rows.num_tiles = row_tiles_of(step, shape.tile_m);
    rows.tile_m = shape.tile_m;
    base.scratch.head_rows =
        rows.num_tiles * rows.tile_m;  // the gradient of the sink is a sum over the rows of all tiles
    const SequenceTable& sequences = base.view.sequences;
    params->rows_of_q = sequences.cu_seqlens_q.given() ? step.sizes.total_q : sequences.seqlen_q;
    params->rows_of_k = sequences.cu_seqlens_k.given() ? step.sizes.total_k : sequences.seqlen_k;
    const Visibility& visibility = base.view.visibility;
    const MaskSpec& mask = visibility.positional;
    params->is_band = mask.chunk == 0 && mask.block == 0 && mask.prefix == 0 && !visibility.prefix_lens.given();
    return make_first_maps(step, shape, params);
}

Status launch_bulk_prologue(const BulkBackwardParams& params, const BulkBackwardShape& shape, const Step& step,
                            const Arguments& arguments) {
    BulkPrologueParams prologue;
    prologue.view = params.base.view;
    prologue.grad_o = params.base.grad.o;
    prologue.grad_q = params.base.grad.q;
    prologue.grad_lse = params.base.grad.lse;
    prologue.rows = params.rows;
    prologue.panels = shape.panels;
    const DType dtype = step.problem[Arg::kQ].dtype;
    prologue.lanes_of_row = lanes_of_row(step.sizes.head_dim_v, 16 / static_cast<int>(size_of(dtype)));
    const int64_t rows_of_block = int64_t{kPrologueRows} * kPrologueThreads / prologue.lanes_of_row;
    const int64_t num_rows = params.rows.num_tiles * params.rows.tile_m;
    Status status = launch_kernel("sm90_bwd_prologue", bulk_prologue_entry(dtype),
                                  {ceil_div(num_rows, rows_of_block) * step.sizes.num_heads_q, kPrologueThreads, 0},
                                  &prologue, arguments);
    if (status.ok()) status = launch_bwd_key_prologue(params.base, arguments);
    if (status.ok()) status = launch_grad_sink(params.base, num_rows, step, arguments);
    if (!status.ok() || !params.base.grad.bias.given()) return status;
    const TensorDesc& bias = step.problem[Arg::kGradBias];
    return memory_functions().fill(arguments.device, params.base.grad.bias.data, 0,
                                   bias.num_elements() * size_of(bias.dtype), arguments.stream);
}

}  // namespace tilewise::cuda::sm90
