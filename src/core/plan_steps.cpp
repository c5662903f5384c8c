// Breaks a call into steps. A decode that appends becomes (1) append: k_new, v_new into the cache, lengths after the append, and with
// rotary the rotated queries, into the workspace; (2) a plain forward that reads those. A decode that appends nothing is a
// forward whose seqused_k is the caller's cache_seqlens.
#include "core/plan_parts.hpp"
#include "core/workspace.hpp"

namespace tilewise {
namespace {

// Without leftpad_k: append counts rows and positions from the start of the cache.
constexpr Arg kCacheArgs[] = {Arg::kK,         Arg::kV,    Arg::kCacheSeqlens, Arg::kCacheBatchIdx,
                              Arg::kPageTable, Arg::kKNew, Arg::kVNew,         Arg::kCuSeqlensKNew,
                              Arg::kErrorFlag};
constexpr Arg kRotaryArgs[] = {Arg::kRotaryCos, Arg::kRotarySin, Arg::kRotarySeqlens};

Step step_of(Problem problem) {
    Step step;
    step.sizes = sizes_of(problem);
    step.problem = std::move(problem);
    return step;
}

// Gives the step a tensor that lies in the workspace.
void redirect(Step& step, Arg arg, const TensorDesc& tensor, int64_t offset) {
    step.problem[arg] = tensor;
    step.redirected[arg] = offset + 1;
}

TensorDesc contiguous_copy_of(const TensorDesc& tensor) {
    if (tensor.rank == 3) return contiguous(tensor.dtype, {tensor.dim(0), tensor.dim(1), tensor.dim(2)});
    return contiguous(tensor.dtype, {tensor.dim(0), tensor.dim(1), tensor.dim(2), tensor.dim(3)});
}

int64_t bytes_of(const TensorDesc& tensor) { return tensor.num_elements() * size_of(tensor.dtype); }

Problem append_problem(const Problem& call) {
    Problem problem;
    problem.op = Op::kAppend;
    problem.exec = call.exec;
    for (const Arg arg : kCacheArgs) problem[arg] = call[arg];
    if (!call.has(Arg::kRotaryCos)) return problem;
    for (const Arg arg : kRotaryArgs) problem[arg] = call[arg];
    for (const Arg arg : {Arg::kQ, Arg::kCuSeqlensQ}) problem[arg] = call[arg];
    problem.mask = call.mask;  // decides whether query rows stand at their own places
    return problem;
}

Problem forward_problem(const Problem& call) {
    Problem problem = call;
    problem.op = Op::kForward;
    problem.exec.rotary_interleaved = false;
    for (const Arg arg : {Arg::kCacheSeqlens, Arg::kKNew, Arg::kVNew, Arg::kCuSeqlensKNew, Arg::kErrorFlag})
        problem[arg] = {};
    for (const Arg arg : kRotaryArgs) problem[arg] = {};
    return problem;
}

}  // namespace

std::vector<Step> steps_of(const Problem& problem, std::vector<WorkspaceBlock>* shared_blocks) {
    std::vector<Step> steps;
    if (problem.op != Op::kDecode) {
        steps.push_back(step_of(problem));
        return steps;
    }
    Step forward = step_of(forward_problem(problem));
    if (!problem.has(Arg::kKNew)) {
        forward.problem[Arg::kSequsedK] = problem[Arg::kCacheSeqlens];  // launch passes that pointer as seqused_k
        steps.push_back(std::move(forward));
        return steps;
    }
    Step append = step_of(append_problem(problem));
    WorkspaceLayout shared;
    const TensorDesc lengths = contiguous(DType::kI32, {forward.sizes.batch});
    const int64_t lengths_offset = shared.add("total_seqlens", bytes_of(lengths));
    redirect(append, Arg::kTotalSeqlens, lengths, lengths_offset);
    redirect(forward, Arg::kSequsedK, lengths, lengths_offset);
    if (problem.has(Arg::kRotaryCos)) {
        const TensorDesc rotated = contiguous_copy_of(problem[Arg::kQ]);
        const int64_t rotated_offset = shared.add("q_rotated", bytes_of(rotated));
        redirect(append, Arg::kQRotated, rotated, rotated_offset);
        redirect(forward, Arg::kQ, rotated, rotated_offset);
    }
    append.workspace_base = forward.workspace_base = shared.bytes();
    *shared_blocks = shared.take_blocks();
    steps.push_back(std::move(append));
    steps.push_back(std::move(forward));
    return steps;
}

}  // namespace tilewise
