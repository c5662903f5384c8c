// Compares a call's problem with its plan's. Strides of axes with at most one element mean nothing and may differ.
#include "api/same_problem.hpp"

#include <fmt/format.h>

#include <utility>

namespace tilewise::api {

namespace {

bool same_layout(const TensorDesc& a, const TensorDesc& b) {
    if (a.dtype != b.dtype || a.rank != b.rank || a.shape != b.shape) return false;
    for (int axis = 0; axis < a.rank; ++axis)
        if (a.dim(axis) > 1 && a.step(axis) != b.step(axis)) return false;
    return true;
}

Status check_tensor(Arg arg, const TensorDesc& planned, const TensorDesc& called) {
    if (!same_layout(planned, called))
        return Status::invalid(
            fmt::format("{}: is {}, but the plan was made for {}; a plan is launched on tensors of its own shapes",
                        name_of(arg), to_string(called), to_string(planned)));
    if (called.alignment < planned.alignment)
        return Status::invalid(
            fmt::format("{}: data is aligned to {} bytes, but the plan was made for {}; plan with this pointer, or "
                        "align it",
                        name_of(arg), called.alignment, planned.alignment));
    return {};
}

Status check_options(const Problem& planned, const Problem& called) {
    const MaskSpec &mask_a = planned.mask, &mask_b = called.mask;
    const ScoreSpec &score_a = planned.score, &score_b = called.score;
    const ExecSpec &exec_a = planned.exec, &exec_b = called.exec;
    const std::pair<const char*, bool> options[] = {
        {"window_left", mask_a.window_left == mask_b.window_left},
        {"window_right", mask_a.window_right == mask_b.window_right},
        {"chunk", mask_a.chunk == mask_b.chunk},
        {"block", mask_a.block == mask_b.block},
        {"prefix", mask_a.prefix == mask_b.prefix},
        {"mask.flags", mask_a.top_left == mask_b.top_left},
        {"softmax_scale",
         score_a.has_softmax_scale == score_b.has_softmax_scale && score_a.softmax_scale == score_b.softmax_scale},
        {"softcap", score_a.softcap == score_b.softcap},
        {"dropout_p", score_a.dropout_p == score_b.dropout_p},
        {"dropout_seed", score_b.dropout_p > 0.0f || score_a.dropout_seed == score_b.dropout_seed},
        {"dropout_offset", score_b.dropout_p > 0.0f || score_a.dropout_offset == score_b.dropout_offset},
        {"options.flags",
         exec_a.deterministic == exec_b.deterministic && exec_a.batch_invariant == exec_b.batch_invariant},
        {"rotary_interleaved", exec_a.rotary_interleaved == exec_b.rotary_interleaved},
        {"num_splits", exec_a.num_splits == exec_b.num_splits},
        {"num_threads", exec_a.num_threads == exec_b.num_threads},
        {"max_seqlen_q", exec_a.max_seqlen_q == exec_b.max_seqlen_q},
        {"max_seqlen_k", exec_a.max_seqlen_k == exec_b.max_seqlen_k},
        {"kernel", exec_a.kernel == exec_b.kernel},
    };
    for (const auto& [name, is_same] : options)
        if (!is_same)
            return Status::invalid(
                fmt::format("{}: differs from the call that the plan was made for; make a plan for this call", name));
    return {};
}

}  // namespace

Status check_same(const Problem& planned, const Problem& called) {
    if (planned == called) return {};
    for (size_t i = 0; i < kNumArgs; ++i) {
        const Arg arg = static_cast<Arg>(i);
        if (Status status = check_tensor(arg, planned[arg], called[arg]); !status.ok()) return status;
    }
    return check_options(planned, called);
}

}  // namespace tilewise::api
