// Limits of lengths, the cache with its new keys and rotary tables, and tensors of shape (batch, head, query, key).
// Everything here is known from shapes; what depends on the lengths themselves is in values.cpp.
#include <algorithm>

#include "core/validate.hpp"
#include "core/validate_rules.hpp"

namespace tilewise::rules {

namespace {

// The tensor that says how many sequences there are.
Arg batch_source(const Problem& problem) {
    if (problem.has(Arg::kCuSeqlensQ)) return Arg::kCuSeqlensQ;
    return problem.has(Arg::kQ) ? Arg::kQ : Arg::kCacheSeqlens;
}

Status check_batch(const Problem& problem) {
    const Arg source = batch_source(problem);
    if (problem[source].dim(0) <= kMaxBatch) return {};
    return refuse(source, "{} has more sequences than {}", to_string(problem[source]), kMaxBatch);
}

// The product of pages and rows is not formed before it is known to be small.
Status check_pages(const Problem& problem) {
    if (!problem.has(Arg::kPageTable)) return {};
    const int64_t page_size = problem[Arg::kK].dim(1);
    const int64_t max_pages = problem[Arg::kPageTable].dim(1);
    if (page_size < 1)
        return refuse(Arg::kK, "page_size is {} in {}; at least 1 is allowed", page_size, to_string(problem[Arg::kK]));
    if (max_pages > kMaxSeqlen / page_size)
        return refuse(Arg::kPageTable, "{} pages of {} rows are more keys than {}", max_pages, page_size, kMaxSeqlen);
    return {};
}

Status check_bound(const char* name, int64_t bound, const Problem& problem, Arg cu_seqlens) {
    if (bound < 0)
        return refuse(name, "{} is negative; 0 (not known) or an upper bound of the sequence lengths is allowed",
                      bound);
    if (bound > 0 && !problem.has(cu_seqlens))
        return refuse(name, "{} has no effect without {}", bound, name_of(cu_seqlens));
    return {};
}

Status check_longest(const Problem& problem, Arg arg, int64_t longest, const char* bound) {
    if (longest <= kMaxSeqlen) return {};
    const bool ragged = problem[arg].rank == 3;
    return refuse(arg, "{} has sequences of up to {} rows; at most {} are allowed{}{}", to_string(problem[arg]),
                  longest, kMaxSeqlen, ragged ? ", say so with " : "", ragged ? bound : "");
}

Status check_new_keys(const Problem& problem, const Sizes& sizes) {
    if (!problem.has(Arg::kKNew) || problem.has(Arg::kCuSeqlensKNew)) return {};
    const int64_t new_rows = problem[Arg::kKNew].dim(1);
    if (new_rows > sizes.max_seqlen_k)
        return refuse(Arg::kKNew, "{} new rows do not fit a cache of {} rows", new_rows, sizes.max_seqlen_k);
    if (problem.has(Arg::kRotaryCos) && new_rows > problem[Arg::kRotaryCos].dim(0))
        return refuse(Arg::kRotaryCos, "{} positions are fewer than the {} rows of k_new",
                      problem[Arg::kRotaryCos].dim(0), new_rows);
    return {};
}

Status check_error_flag(const Problem& problem) {
    const TensorDesc& flag = problem[Arg::kErrorFlag];
    if (!flag.given() || (flag.rank == 1 && flag.dim(0) == 1)) return {};
    return refuse(Arg::kErrorFlag, "the shape is that of {}; one element, (1), is allowed", to_string(flag));
}

Status check_rotary_dim(const Problem& problem, const Sizes& sizes) {
    if (!problem.has(Arg::kRotaryCos)) return {};
    const int64_t half = problem[Arg::kRotaryCos].dim(1);
    if (half >= 1 && 2 * half <= sizes.head_dim) return {};
    return refuse(Arg::kRotaryCos, "rotary_dim is {} (twice the last axis of {}); 2 to head_dim, {}, is allowed",
                  2 * half, to_string(problem[Arg::kRotaryCos]), sizes.head_dim);
}

struct PairAxis {
    const char* name;
    int64_t size;
    bool at_least = false;  // lengths of ragged batches are upper bounds: a larger tensor is fine
    bool broadcasts = true;
};

Status check_pair(const Problem& problem, Arg arg, const Sizes& sizes) {
    if (!problem.has(arg)) return {};
    const TensorDesc& tensor = problem[arg];
    if (tensor.rank != 4)
        return refuse(arg,
                      "{} has {} axes; (batch, num_heads_q, seqlen_q, seqlen_k), each of its size or 1, is allowed",
                      to_string(tensor), tensor.rank);
    const bool bits = tensor.dtype == DType::kBits;
    const bool ragged_q = problem.has(Arg::kCuSeqlensQ);
    const bool ragged_k = problem.has(Arg::kCuSeqlensK);
    const int64_t keys = bits ? ceil_div(sizes.max_seqlen_k, 8) : sizes.max_seqlen_k;
    const PairAxis axes[] = {
        {"batch", sizes.batch},
        {"num_heads_q", sizes.num_heads_q},
        {ragged_q ? "max_seqlen_q" : "seqlen_q", sizes.max_seqlen_q, ragged_q},
        // One bit cannot stand for all keys: a byte holds eight of them.
        {bits       ? "bytes of seqlen_k"
         : ragged_k ? "max_seqlen_k"
                    : "seqlen_k",
         keys, ragged_k, !bits},
    };
    for (int i = 0; i < 4; ++i) {
        const PairAxis& axis = axes[i];
        const int64_t size = tensor.dim(i);
        if (size == axis.size || (axis.broadcasts && size == 1) || (axis.at_least && size > axis.size)) continue;
        return refuse(arg, "axis {} ({}) is {} in {}; {}{}{} is allowed", i, axis.name, size, to_string(tensor),
                      axis.broadcasts ? "1 or " : "", axis.at_least ? "at least " : "", axis.size);
    }
    return {};
}

}  // namespace

Status check_lengths(const Problem& problem) {
    const ExecSpec& exec = problem.exec;
    if (Status status = check_bound("max_seqlen_q", exec.max_seqlen_q, problem, Arg::kCuSeqlensQ); !status.ok())
        return status;
    if (Status status = check_bound("max_seqlen_k", exec.max_seqlen_k, problem, Arg::kCuSeqlensK); !status.ok())
        return status;
    if (problem.op == Op::kCombine) return {};  // rows are merged one by one, whatever sequence they are of
    if (Status status = check_batch(problem); !status.ok()) return status;
    if (Status status = check_pages(problem); !status.ok()) return status;
    const Sizes sizes = sizes_of(problem);
    if (Status status = check_longest(problem, Arg::kQ, sizes.max_seqlen_q, "max_seqlen_q"); !status.ok())
        return status;
    return check_longest(problem, Arg::kK, sizes.max_seqlen_k, "max_seqlen_k");
}

Status check_cache(const Problem& problem) {
    const Sizes sizes = sizes_of(problem);
    if (problem.has(Arg::kPageTable) && !problem.has(Arg::kCacheBatchIdx) &&
        problem[Arg::kPageTable].dim(0) < sizes.batch)
        return refuse(Arg::kPageTable,
                      "{} has {} rows, but there are {} sequences; give a row for each, or cache_batch_idx",
                      to_string(problem[Arg::kPageTable]), problem[Arg::kPageTable].dim(0), sizes.batch);
    if (Status status = check_new_keys(problem, sizes); !status.ok()) return status;
    if (Status status = check_error_flag(problem); !status.ok()) return status;
    return check_rotary_dim(problem, sizes);
}

Status check_pairs(const Problem& problem) {
    const Sizes sizes = sizes_of(problem);
    if (Status status = check_pair(problem, Arg::kMask, sizes); !status.ok()) return status;
    if (Status status = check_pair(problem, Arg::kBias, sizes); !status.ok()) return status;
    if (!problem.has(Arg::kGradBias)) return {};
    const TensorDesc& bias = problem[Arg::kBias];
    const TensorDesc& grad = problem[Arg::kGradBias];
    if (grad.rank == bias.rank && std::equal(bias.shape.begin(), bias.shape.begin() + bias.rank, grad.shape.begin()))
        return {};
    return refuse(Arg::kGradBias, "the shape is that of {}; the shape of bias, {}, is allowed", to_string(grad),
                  to_string(bias));
}

}  // namespace tilewise::rules
