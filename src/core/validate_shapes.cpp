// Tensors against each other: a table names each axis of each tensor, the first tensor that has an axis fixes its size, and
// every later one has to agree. So a disagreement is one comparison, and its message names both tensors.
// Shapes of (batch, head, query, key) broadcast and are compared in validate_lengths.cpp.
#include <array>
#include <string>

#include "core/validate.hpp"
#include "core/validate_rules.hpp"

namespace tilewise::rules {

namespace {

// clang-format off
enum class Axis : uint8_t {
    kNone, kBatch, kBatchPlus1, kSeqlenQ, kTotalQ, kHeadsQ, kDim, kDimV,
    kCacheRows, kSeqlenK, kTotalK, kNumPages, kPageSize, kHeadsKv, kTableRows, kMaxPages,
    kNewRows, kTotalNew, kPositions, kRotaryHalf, kSplits, kCount
};
constexpr const char* kAxisNames[] = {
    "", "batch", "batch + 1", "seqlen_q", "total_q", "num_heads_q", "head_dim", "head_dim_v",
    "cache rows", "seqlen_k", "total_k", "num_pages", "page_size", "num_heads_kv", "page table rows", "max_pages",
    "new rows", "total new rows", "positions", "rotary_dim / 2", "num_splits",
};
// clang-format on
static_assert(std::size(kAxisNames) == static_cast<size_t>(Axis::kCount));
using Axes = std::array<Axis, kMaxRank>;
const char* name_of(Axis axis) { return kAxisNames[static_cast<size_t>(axis)]; }

// When a row of the table holds; a problem has one form of each group.
enum Form : uint32_t {
    kAlways = 1,
    kDenseQ = 2,
    kRaggedQ = 4,
    kDenseK = 8,
    kCachedK = 16,
    kRaggedK = 32,
    kPagedK = 64,
    kDenseNew = 128,
    kRaggedNew = 256,
    kSlopesOfHeads = 512,
    kSlopesOfBatch = 1024
};
const char* condition_of(Form form, Op op) {
    switch (form) {
    case kRaggedQ: return op == Op::kCombine ? " for ragged rows" : " with cu_seqlens_q";
    case kCachedK: return " with cache_batch_idx";
    case kRaggedK: return " with cu_seqlens_k";
    case kPagedK: return " with page_table";
    case kRaggedNew: return " with cu_seqlens_k_new";
    default: return "";
    }
}

struct ShapeRow {
    Arg arg;
    Form form;
    Axes axes;
};
using enum Axis;

// In the order in which sizes are taken: the caller most likely got the lengths and q right.
constexpr ShapeRow kShapeRows[] = {
    {Arg::kCuSeqlensQ, kAlways, {kBatchPlus1}},
    {Arg::kQ, kDenseQ, {kBatch, kSeqlenQ, kHeadsQ, kDim}},
    {Arg::kQ, kRaggedQ, {kTotalQ, kHeadsQ, kDim}},
    {Arg::kCacheSeqlens, kAlways, {kBatch}},
    {Arg::kCacheBatchIdx, kAlways, {kBatch}},
    {Arg::kCuSeqlensK, kAlways, {kBatchPlus1}},
    {Arg::kPageTable, kAlways, {kTableRows, kMaxPages}},
    {Arg::kK, kDenseK, {kBatch, kSeqlenK, kHeadsKv, kDim}},
    {Arg::kK, kCachedK, {kCacheRows, kSeqlenK, kHeadsKv, kDim}},
    {Arg::kK, kRaggedK, {kTotalK, kHeadsKv, kDim}},
    {Arg::kK, kPagedK, {kNumPages, kPageSize, kHeadsKv, kDim}},
    {Arg::kV, kDenseK, {kBatch, kSeqlenK, kHeadsKv, kDimV}},
    {Arg::kV, kCachedK, {kCacheRows, kSeqlenK, kHeadsKv, kDimV}},
    {Arg::kV, kRaggedK, {kTotalK, kHeadsKv, kDimV}},
    {Arg::kV, kPagedK, {kNumPages, kPageSize, kHeadsKv, kDimV}},
    {Arg::kPartialO, kDenseQ, {kSplits, kBatch, kSeqlenQ, kHeadsQ, kDimV}},
    {Arg::kPartialO, kRaggedQ, {kSplits, kTotalQ, kHeadsQ, kDimV}},
    {Arg::kPartialLse, kDenseQ, {kSplits, kBatch, kHeadsQ, kSeqlenQ}},
    {Arg::kPartialLse, kRaggedQ, {kSplits, kHeadsQ, kTotalQ}},
    {Arg::kO, kDenseQ, {kBatch, kSeqlenQ, kHeadsQ, kDimV}},
    {Arg::kO, kRaggedQ, {kTotalQ, kHeadsQ, kDimV}},
    {Arg::kLse, kDenseQ, {kBatch, kHeadsQ, kSeqlenQ}},
    {Arg::kLse, kRaggedQ, {kHeadsQ, kTotalQ}},
    {Arg::kGradO, kDenseQ, {kBatch, kSeqlenQ, kHeadsQ, kDimV}},
    {Arg::kGradO, kRaggedQ, {kTotalQ, kHeadsQ, kDimV}},
    {Arg::kGradLse, kDenseQ, {kBatch, kHeadsQ, kSeqlenQ}},
    {Arg::kGradLse, kRaggedQ, {kHeadsQ, kTotalQ}},
    {Arg::kGradQ, kDenseQ, {kBatch, kSeqlenQ, kHeadsQ, kDim}},
    {Arg::kGradQ, kRaggedQ, {kTotalQ, kHeadsQ, kDim}},
    {Arg::kGradK, kDenseK, {kBatch, kSeqlenK, kHeadsKv, kDim}},
    {Arg::kGradK, kRaggedK, {kTotalK, kHeadsKv, kDim}},
    {Arg::kGradV, kDenseK, {kBatch, kSeqlenK, kHeadsKv, kDimV}},
    {Arg::kGradV, kRaggedK, {kTotalK, kHeadsKv, kDimV}},
    {Arg::kGradSink, kAlways, {kHeadsQ}},
    {Arg::kSequsedQ, kAlways, {kBatch}},
    {Arg::kSequsedK, kAlways, {kBatch}},
    {Arg::kLeftpadK, kAlways, {kBatch}},
    {Arg::kKeyBegin, kDenseQ, {kBatch, kSeqlenQ}},
    {Arg::kKeyBegin, kRaggedQ, {kTotalQ}},
    {Arg::kKeyEnd, kDenseQ, {kBatch, kSeqlenQ}},
    {Arg::kKeyEnd, kRaggedQ, {kTotalQ}},
    {Arg::kPrefixLens, kAlways, {kBatch}},
    {Arg::kAlibiSlopes, kSlopesOfHeads, {kHeadsQ}},
    {Arg::kAlibiSlopes, kSlopesOfBatch, {kBatch, kHeadsQ}},
    {Arg::kSink, kAlways, {kHeadsQ}},
    {Arg::kCuSeqlensKNew, kAlways, {kBatchPlus1}},
    {Arg::kKNew, kDenseNew, {kBatch, kNewRows, kHeadsKv, kDim}},
    {Arg::kKNew, kRaggedNew, {kTotalNew, kHeadsKv, kDim}},
    {Arg::kVNew, kDenseNew, {kBatch, kNewRows, kHeadsKv, kDimV}},
    {Arg::kVNew, kRaggedNew, {kTotalNew, kHeadsKv, kDimV}},
    {Arg::kRotaryCos, kAlways, {kPositions, kRotaryHalf}},
    {Arg::kRotarySin, kAlways, {kPositions, kRotaryHalf}},
    {Arg::kRotarySeqlens, kAlways, {kBatch}},
};

int rank_of(const Axes& axes) {
    int rank = 0;
    while (rank < kMaxRank && axes[static_cast<size_t>(rank)] != kNone) ++rank;
    return rank;
}

// "(batch, seqlen_q, num_heads_q, head_dim)"
std::string to_string(const Axes& axes) {
    std::string text = "(";
    for (int i = 0; i < rank_of(axes); ++i)
        text += std::string(i == 0 ? "" : ", ") + name_of(axes[static_cast<size_t>(i)]);
    return text + ")";
}

uint32_t forms_of(const Problem& problem) {
    // The partial outputs of combine are ragged when they have one axis less.
    const bool ragged_q =
        problem.op == Op::kCombine ? problem[Arg::kPartialO].rank == 4 : problem.has(Arg::kCuSeqlensQ);
    uint32_t forms = kAlways;
    forms |= ragged_q ? kRaggedQ : kDenseQ;
    if (problem.has(Arg::kPageTable))
        forms |= kPagedK;
    else if (problem.has(Arg::kCuSeqlensK))
        forms |= kRaggedK;
    else if (problem.has(Arg::kCacheBatchIdx))
        forms |= kCachedK;
    else
        forms |= kDenseK;
    forms |= problem.has(Arg::kCuSeqlensKNew) ? kRaggedNew : kDenseNew;
    forms |= problem[Arg::kAlibiSlopes].rank == 2 ? kSlopesOfBatch : kSlopesOfHeads;
    return forms;
}

// The sizes fixed so far and the tensors that fixed them.
class Binding {
public:
    explicit Binding(const Problem& problem) : problem_(problem) {}

    Status take(const ShapeRow& row) {
        const TensorDesc& tensor = problem_[row.arg];
        if (tensor.rank != rank_of(row.axes)) return wrong_rank(row.arg);
        for (int i = 0; i < tensor.rank; ++i) {
            const Axis axis = row.axes[static_cast<size_t>(i)];
            if (axis == kBatchPlus1 && tensor.dim(i) < 1)
                return refuse(row.arg, "{} is empty; (batch + 1) elements are needed", tilewise::to_string(tensor));
            if (!fixed(axis)) fix(axis, tensor.dim(i), row.arg);
            if (sizes_[index(axis)] != tensor.dim(i)) return disagreement(row, i);
        }
        return {};
    }

private:
    static size_t index(Axis axis) { return static_cast<size_t>(axis); }
    bool fixed(Axis axis) const { return sources_[index(axis)] != Arg::kCount; }

    void fix_one(Axis axis, int64_t size, Arg source) {
        sizes_[index(axis)] = size;
        sources_[index(axis)] = source;
    }
    void fix(Axis axis, int64_t size, Arg source) {
        fix_one(axis, size, source);
        if (axis == kBatch) fix_one(kBatchPlus1, size + 1, source);
        if (axis == kBatchPlus1) fix_one(kBatch, size - 1, source);
    }

    Status wrong_rank(Arg arg) const {
        std::string allowed;
        for (const ShapeRow& row : kShapeRows) {
            if (row.arg != arg) continue;
            allowed += (allowed.empty() ? "" : " or ") + to_string(row.axes) + condition_of(row.form, problem_.op);
        }
        return refuse(arg, "{} has {} axes; {} is allowed", tilewise::to_string(problem_[arg]), problem_[arg].rank,
                      allowed);
    }

    Status disagreement(const ShapeRow& row, int position) const {
        const TensorDesc& tensor = problem_[row.arg];
        const Axis axis = row.axes[static_cast<size_t>(position)];
        const Arg source = sources_[index(axis)];
        return refuse(row.arg, "{} is {} in {}, but {} by {}, {}; {} is {}{}", name_of(axis), tensor.dim(position),
                      tilewise::to_string(tensor), sizes_[index(axis)], tilewise::name_of(source),
                      tilewise::to_string(problem_[source]), tilewise::name_of(row.arg), to_string(row.axes),
                      hint(row));
    }

    // A layout with heads before rows is the most common cause; say so where it would explain the sizes.
    std::string hint(const ShapeRow& row) const {
        const TensorDesc& tensor = problem_[row.arg];
        if (rank_of(row.axes) != 4) return {};
        const bool exchanged = agrees(row.axes[1], tensor.dim(2)) && agrees(row.axes[2], tensor.dim(1));
        const bool swapped_k = !problem_.has(Arg::kPageTable) && looks_swapped(problem_[Arg::kK]);
        if (!exchanged && !swapped_k && !looks_swapped(tensor)) return {};
        return "; did you pass (batch, heads, length, dim)?";
    }
    bool agrees(Axis axis, int64_t size) const { return fixed(axis) && sizes_[index(axis)] == size; }

    const Problem& problem_;
    std::array<int64_t, static_cast<size_t>(Axis::kCount)> sizes_{};
    std::array<Arg, static_cast<size_t>(Axis::kCount)> sources_ = [] {
        std::array<Arg, static_cast<size_t>(Axis::kCount)> none;
        none.fill(Arg::kCount);
        return none;
    }();
};

Status check_range(Arg arg, const char* what, int64_t value, int64_t largest) {
    if (value >= 1 && value <= largest) return {};
    return refuse(arg, "{} is {}; 1 to {} is allowed", what, value, largest);
}

}  // namespace

bool looks_swapped(const TensorDesc& tensor) {
    return tensor.rank == 4 && tensor.dim(1) > 1 && tensor.dim(2) > 4 * tensor.dim(1);
}

Status check_shapes(const Problem& problem) {
    const uint32_t forms = forms_of(problem);
    Binding binding(problem);
    for (const ShapeRow& row : kShapeRows) {
        if ((row.form & forms) == 0 || !problem.has(row.arg)) continue;
        if (Status status = binding.take(row); !status.ok()) return status;
    }
    return {};
}

Status check_head_counts(const Problem& problem) {
    const auto last = [&](Arg arg) { return problem[arg].dim(problem[arg].rank - 1); };
    const auto heads = [&](Arg arg) { return problem[arg].dim(problem[arg].rank - 2); };
    if (problem.op == Op::kCombine)
        return check_range(Arg::kPartialO, "head_dim_v", last(Arg::kPartialO), kMaxHeadDimV);
    const Arg holder = problem.has(Arg::kQ) ? Arg::kQ : Arg::kK;
    if (Status status = check_range(holder, "head_dim", last(holder), kMaxHeadDim); !status.ok()) return status;
    if (Status status = check_range(Arg::kV, "head_dim_v", last(Arg::kV), kMaxHeadDimV); !status.ok()) return status;
    if (!problem.has(Arg::kQ)) return {};
    const int64_t heads_q = heads(Arg::kQ);
    const int64_t heads_kv = heads(Arg::kK);
    if (heads_q == 0 || (heads_kv > 0 && heads_q % heads_kv == 0)) return {};
    const char* hint = looks_swapped(problem[Arg::kK]) && !problem.has(Arg::kPageTable)
                           ? "; did you pass (batch, heads, length, dim)?"
                           : "";
    return refuse(Arg::kK, "num_heads_kv is {} and num_heads_q is {}; num_heads_q is a multiple of num_heads_kv{}",
                  heads_kv, heads_q, hint);
}

}  // namespace tilewise::rules
