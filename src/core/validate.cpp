// validate: the rules that a problem keeps before any device is asked, in the order in which they rely on each other.
// Problem -> ok, or the first broken rule as a sentence.
#include "core/validate.hpp"

#include "core/validate_rules.hpp"

namespace tilewise {

Status validate(const Problem& problem) {
    using Check = Status (*)(const Problem&);
    constexpr Check kChecks[] = {
        rules::check_arguments,   rules::check_descriptors, rules::check_dtypes,  rules::check_shapes,
        rules::check_head_counts, rules::check_lengths,     rules::check_cache,   rules::check_pairs,
        rules::check_mask,        rules::check_score,       rules::check_options, rules::check_outputs,
    };
    for (const Check check : kChecks) {
        if (Status status = check(problem); !status.ok()) return status;
    }
    return {};
}

std::string layout_hint(const Problem& problem) {
    const TensorDesc& q = problem[Arg::kQ];
    const TensorDesc& k = problem[Arg::kK];
    // Models have at most 128 heads; a short prompt of a model with many heads is no mistake.
    constexpr int64_t kManyHeads = 128;
    if (problem.has(Arg::kPageTable) || !rules::looks_swapped(q) || !rules::looks_swapped(k)) return {};
    if (k.dim(2) <= kManyHeads) return {};
    return fmt::format(
        "q: {} heads on {} rows, k: {} heads on {} rows; did you pass (batch, heads, length, dim)? The order "
        "is (batch, length, heads, dim)",
        q.dim(2), q.dim(1), k.dim(2), k.dim(1));
}

}  // namespace tilewise
