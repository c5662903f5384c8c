// What is checked at launch: pointers, and the integers behind them where they lie in host memory.
// (Problem, Arguments) -> ok, or the first wrong element as a sentence. O(batch + pages in use): data tensors, key_begin and
// key_end (any value of which is clamped to the sequence) are not read.
#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "core/validate.hpp"
#include "core/validate_rules.hpp"
#include "core/view.hpp"
#include "math/sequence.hpp"

namespace tilewise {

namespace {

using rules::refuse;

Status check_pointer(Arg arg, const TensorDesc& tensor, const void* pointer) {
    if (tensor.num_elements() == 0) return {};
    if (pointer == nullptr) return refuse(arg, "the pointer is null; memory of {} is needed", to_string(tensor));
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    const int64_t aligned = int64_t{1} << std::countr_zero(address | 16);
    if (aligned < size_of(tensor.dtype))
        return refuse(arg, "the address is aligned to {} bytes; elements of {} need {}", aligned, name_of(tensor.dtype),
                      size_of(tensor.dtype));
    // Vectors of data are loaded as the plan assumed; integers are read one by one.
    if (tensor.dtype != DType::kI32 && aligned < tensor.alignment)
        return refuse(arg,
                      "the address is aligned to {} bytes, but the plan was made for {}; plan with such an address",
                      aligned, tensor.alignment);
    return {};
}

// One pass over the sequences of a launch. Rows are those of the valid problem, values are not trusted.
class ValueCheck {
public:
    ValueCheck(const Problem& problem, const Arguments& arguments)
        : problem_(problem), arguments_(arguments), sizes_(sizes_of(problem)) {}

    Status run() const;

private:
    struct KeyRange {
        int64_t begin;
        int64_t end;
    };

    IntVector ints(Arg arg) const {
        const TensorDesc& tensor = problem_[arg];
        if (!tensor.given()) return {};
        return {arguments_.get<int32_t>(arg), stride_of(tensor, 0)};
    }
    bool appends() const { return problem_.has(Arg::kKNew); }

    Status check_cumulative(Arg arg, int64_t rows, const char* bound_name, int64_t bound) const;
    Status check_sequence(int64_t batch) const;
    Status check_queries(int64_t batch) const;
    Status check_cache_row(int64_t batch) const;
    Status check_used_keys(int64_t batch) const;
    Status check_new_keys(int64_t batch) const;
    Status check_leftpad(int64_t batch, int64_t largest) const;
    Status check_rotary(int64_t batch) const;
    Status check_page_ids(int64_t batch, KeyRange keys) const;
    Status check_distinct_rows() const;

    int64_t cache_rows() const { return problem_[problem_.has(Arg::kPageTable) ? Arg::kPageTable : Arg::kK].dim(0); }
    int64_t cache_row(int64_t batch) const { return cache_batch_idx_.given() ? cache_batch_idx_[batch] : batch; }
    int64_t allocated_q(int64_t batch) const { return rows_of(cu_seqlens_q_, batch, sizes_.max_seqlen_q); }
    int64_t allocated_k(int64_t batch) const { return rows_of(cu_seqlens_k_, batch, sizes_.max_seqlen_k); }
    int64_t new_rows(int64_t batch) const {
        return appends() ? rows_of(cu_seqlens_k_new_, batch, problem_[Arg::kKNew].dim(1)) : 0;
    }
    static int64_t rows_of(const IntVector& cumulative, int64_t batch, int64_t dense) {
        return cumulative.given() ? int64_t{cumulative[batch + 1]} - cumulative[batch] : dense;
    }

    const Problem& problem_;
    const Arguments& arguments_;
    Sizes sizes_;
    IntVector cu_seqlens_q_ = ints(Arg::kCuSeqlensQ);
    IntVector cu_seqlens_k_ = ints(Arg::kCuSeqlensK);
    IntVector cu_seqlens_k_new_ = ints(Arg::kCuSeqlensKNew);
    IntVector cache_seqlens_ = ints(Arg::kCacheSeqlens);
    IntVector cache_batch_idx_ = ints(Arg::kCacheBatchIdx);
};

Status ValueCheck::check_cumulative(Arg arg, int64_t rows, const char* bound_name, int64_t bound) const {
    const IntVector cumulative = ints(arg);
    if (!cumulative.given()) return {};
    if (cumulative[0] != 0) return refuse(arg, "[0] is {}; 0 is allowed", cumulative[0]);
    for (int64_t i = 1; i <= sizes_.batch; ++i) {
        const int64_t length = int64_t{cumulative[i]} - cumulative[i - 1];
        if (length < 0)
            return refuse(arg, "[{}] is {} after {}; the values never decrease", i, cumulative[i], cumulative[i - 1]);
        if (bound > 0 && length > bound)
            return refuse(bound_name, "{} is less than the {} rows of sequence {} in {}", bound, length, i - 1,
                          name_of(arg));
    }
    if (cumulative[sizes_.batch] > rows)
        return refuse(arg, "[{}] is {}, but the tensor has {} rows; at most as many are allowed", sizes_.batch,
                      cumulative[sizes_.batch], rows);
    return {};
}

Status ValueCheck::check_queries(int64_t batch) const {
    if (const IntVector used = ints(Arg::kSequsedQ); used.given()) {
        if (used[batch] < 0 || used[batch] > allocated_q(batch))
            return refuse(Arg::kSequsedQ, "[{}] is {}; 0 to {}, the rows of the sequence, is allowed", batch,
                          used[batch], allocated_q(batch));
    }
    if (const IntVector prefix = ints(Arg::kPrefixLens); prefix.given() && prefix[batch] < 0)
        return refuse(Arg::kPrefixLens, "[{}] is {}; at least 0 is allowed", batch, prefix[batch]);
    return {};
}

Status ValueCheck::check_cache_row(int64_t batch) const {
    if (!cache_batch_idx_.given()) return {};
    const int32_t row = cache_batch_idx_[batch];
    if (row >= 0 && row < cache_rows()) return {};
    return refuse(Arg::kCacheBatchIdx, "[{}] is {}, but {} has {} rows; at least 0 and below that is allowed", batch,
                  row, problem_.has(Arg::kPageTable) ? "page_table" : "k", cache_rows());
}

Status ValueCheck::check_leftpad(int64_t batch, int64_t largest) const {
    const IntVector leftpad = ints(Arg::kLeftpadK);
    if (!leftpad.given() || (leftpad[batch] >= 0 && leftpad[batch] <= largest)) return {};
    return refuse(Arg::kLeftpadK, "[{}] is {}; 0 to {}, the keys of the sequence, is allowed", batch, leftpad[batch],
                  largest);
}

// Keys that attention reads where nothing is appended.
Status ValueCheck::check_used_keys(int64_t batch) const {
    const Arg arg = problem_.op == Op::kDecode ? Arg::kCacheSeqlens : Arg::kSequsedK;
    const IntVector given = ints(arg);
    const int64_t capacity = allocated_k(batch);
    const int64_t used = given.given() ? given[batch] : capacity;
    if (used < 0) return refuse(arg, "[{}] is {}; at least 0 is allowed", batch, used);
    if (used > capacity && problem_.has(Arg::kPageTable))
        return refuse(Arg::kPageTable, "{} pages of {} rows hold {} keys, but {}[{}] is {}",
                      problem_[Arg::kPageTable].dim(1), sizes_.page_size, capacity, name_of(arg), batch, used);
    if (used > capacity)
        return refuse(arg, "[{}] is {}; 0 to {}, the rows of the sequence in k, is allowed", batch, used, capacity);
    if (Status status = check_leftpad(batch, used); !status.ok()) return status;
    const IntVector leftpad = ints(Arg::kLeftpadK);
    return check_page_ids(batch, {leftpad.given() ? leftpad[batch] : 0, used});
}

// Keys that an append writes and, in a decode, those that attention then reads.
Status ValueCheck::check_new_keys(int64_t batch) const {
    const int64_t cached = cache_seqlens_[batch];
    const int64_t added = new_rows(batch);
    const int64_t capacity = sizes_.max_seqlen_k;
    if (cached < 0) return refuse(Arg::kCacheSeqlens, "[{}] is {}; at least 0 is allowed", batch, cached);
    if (cached + added > capacity && problem_.has(Arg::kPageTable))
        return refuse(Arg::kPageTable,
                      "{} pages of {} rows hold {} keys, but cache_seqlens[{}] is {} and k_new adds {}",
                      problem_[Arg::kPageTable].dim(1), sizes_.page_size, capacity, batch, cached, added);
    if (cached + added > capacity)
        return refuse(Arg::kCacheSeqlens, "[{}] is {} and k_new adds {} rows; the cache holds {}", batch, cached, added,
                      capacity);
    if (Status status = check_leftpad(batch, cached); !status.ok()) return status;
    if (Status status = check_rotary(batch); !status.ok()) return status;
    if (problem_.op == Op::kAppend) return check_page_ids(batch, {cached, cached + added});
    const IntVector leftpad = ints(Arg::kLeftpadK);
    return check_page_ids(batch, {leftpad.given() ? leftpad[batch] : 0, cached + added});
}

Status ValueCheck::check_rotary(int64_t batch) const {
    if (!problem_.has(Arg::kRotaryCos)) return {};
    const IntVector seqlens = ints(Arg::kRotarySeqlens);
    const Arg source = seqlens.given() ? Arg::kRotarySeqlens : Arg::kCacheSeqlens;
    const int64_t first = seqlens.given() ? seqlens[batch] : cache_seqlens_[batch];
    if (first < 0) return refuse(source, "[{}] is {}; at least 0 is allowed", batch, first);
    int64_t end = first + new_rows(batch);
    if (problem_.has(Arg::kQ)) {
        // All rows of q are rotated, those past seqused_q too.
        const int64_t queries = allocated_q(batch);
        end = max_of(end, first + (is_positional(problem_.mask) ? queries : min_of<int64_t>(queries, 1)));
    }
    const int64_t positions = problem_[Arg::kRotaryCos].dim(0);
    if (end == first || end <= positions) return {};
    return refuse(Arg::kRotaryCos, "{} positions end before {}, the last one of sequence {} ({}[{}] is {})", positions,
                  end - 1, batch, name_of(source), batch, first);
}

Status ValueCheck::check_page_ids(int64_t batch, KeyRange keys) const {
    if (!problem_.has(Arg::kPageTable) || keys.begin >= keys.end) return {};
    const TensorDesc& table = problem_[Arg::kPageTable];
    const int64_t row = cache_row(batch);
    const int64_t num_pages = problem_[Arg::kK].dim(0);
    const int32_t* ids = arguments_.get<int32_t>(Arg::kPageTable) + (table.dim(0) == 1 ? 0 : row * table.step(0));
    const int64_t stride = stride_of(table, 1);
    for (int64_t page = keys.begin / sizes_.page_size; page <= (keys.end - 1) / sizes_.page_size; ++page) {
        const int32_t id = ids[page * stride];
        if (id < 0 || id >= num_pages)
            return refuse(
                Arg::kPageTable,
                "[{}][{}] is {}, but k has {} pages; at least 0 and below that is allowed where a sequence has keys",
                row, page, id, num_pages);
    }
    return {};
}

// Two sequences that append to one cache row would overwrite each other.
Status ValueCheck::check_distinct_rows() const {
    if (!appends() || !cache_batch_idx_.given()) return {};
    std::vector<std::pair<int32_t, int64_t>> writers;  // (cache row, sequence)
    for (int64_t batch = 0; batch < sizes_.batch; ++batch) {
        if (new_rows(batch) > 0) writers.emplace_back(cache_batch_idx_[batch], batch);
    }
    std::sort(writers.begin(), writers.end());
    const auto same_row = [](const auto& a, const auto& b) { return a.first == b.first; };
    const auto found = std::adjacent_find(writers.begin(), writers.end(), same_row);
    if (found == writers.end()) return {};
    return refuse(Arg::kCacheBatchIdx, "[{}] and [{}] are both {}; sequences with new keys need distinct rows",
                  found->second, (found + 1)->second, found->first);
}

Status ValueCheck::check_sequence(int64_t batch) const {
    if (Status status = check_queries(batch); !status.ok()) return status;
    if (Status status = check_cache_row(batch); !status.ok()) return status;
    return appends() ? check_new_keys(batch) : check_used_keys(batch);
}

Status ValueCheck::run() const {
    const ExecSpec& exec = problem_.exec;
    Status status = check_cumulative(Arg::kCuSeqlensQ, sizes_.total_q, "max_seqlen_q", exec.max_seqlen_q);
    if (status.ok()) status = check_cumulative(Arg::kCuSeqlensK, sizes_.total_k, "max_seqlen_k", exec.max_seqlen_k);
    if (status.ok()) status = check_cumulative(Arg::kCuSeqlensKNew, problem_[Arg::kKNew].dim(0), "k_new", 0);
    for (int64_t batch = 0; batch < sizes_.batch && status.ok(); ++batch) status = check_sequence(batch);
    return status.ok() ? check_distinct_rows() : status;
}

}  // namespace

Status check_pointers(const Problem& problem, const Arguments& arguments) {
    for (size_t i = 0; i < kNumArgs; ++i) {
        const Arg arg = static_cast<Arg>(i);
        if (!problem.has(arg)) continue;
        if (Status status = check_pointer(arg, problem[arg], arguments.pointers[arg]); !status.ok()) return status;
    }
    return {};
}

Status check_values(const Problem& problem, const Arguments& arguments) {
    if (problem.op == Op::kCombine) return {};
    return ValueCheck(problem, arguments).run();
}

}  // namespace tilewise
