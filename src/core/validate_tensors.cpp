// Each tensor alone: rank, sizes, strides and extent, element type, and whether an output's elements are distinct.
// Strides of axes of size 1 mean nothing and are never looked at.
#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "core/validate.hpp"
#include "core/validate_rules.hpp"

namespace tilewise::rules {

namespace {

Status check_axes(Arg arg, const TensorDesc& tensor) {
    if (tensor.rank < 0 || tensor.rank > kMaxRank)
        return refuse(arg, "rank is {}; 0 to {} axes are allowed", tensor.rank, kMaxRank);
    int64_t count = 1;  // as if empty axes had one element: products of any of the sizes stay below it
    for (int axis = 0; axis < tensor.rank; ++axis) {
        const int64_t size = tensor.dim(axis);
        if (size < 0) return refuse(arg, "axis {} of {} is negative; sizes are at least 0", axis, to_string(tensor));
        if (size > 1 && tensor.step(axis) < 0)
            return refuse(arg, "stride {} of axis {} is negative; strides are at least 0", tensor.step(axis), axis);
        if (size > kMaxElements / count)
            return refuse(arg, "{} has too many elements; at most 2^48 are allowed", to_string(tensor));
        count *= std::max<int64_t>(size, 1);
    }
    return {};
}

Status check_extent(Arg arg, const TensorDesc& tensor) {
    if (tensor.num_elements() == 0) return {};
    const int64_t size = size_of(tensor.dtype);
    if (size == 0) return refuse(arg, "dtype {} is unknown", static_cast<int>(tensor.dtype));
    if (tensor.last_offset() >= std::numeric_limits<int64_t>::max() / size)
        return refuse(arg, "{} reaches past byte 2^63 of its memory; smaller strides are needed", to_string(tensor));
    if (tensor.alignment < size)
        return refuse(arg, "the address is aligned to {} bytes; elements of {} need {}", tensor.alignment,
                      name_of(tensor.dtype), size);
    return {};
}

constexpr uint32_t bit(DType dtype) { return 1u << static_cast<unsigned>(dtype); }
constexpr uint32_t kReals = bit(DType::kF32) | bit(DType::kF16) | bit(DType::kBF16);
constexpr uint32_t kDoubles = bit(DType::kF64);
constexpr uint32_t kInts = bit(DType::kI32);

struct DTypeRow {
    Arg arg;
    uint32_t types;
    Arg like = Arg::kCount;       // the type of this tensor is allowed, too
    bool f64_beside_f64 = false;  // f64 is allowed where q, k, v are f64
};

// q, k and v are compared with each other first.
constexpr DTypeRow kDTypeRows[] = {
    {Arg::kLse, bit(DType::kF32), Arg::kCount, true},
    {Arg::kGradO, 0, Arg::kQ},
    {Arg::kGradLse, bit(DType::kF32), Arg::kCount, true},
    {Arg::kGradQ, 0, Arg::kQ},
    {Arg::kGradK, 0, Arg::kK},
    {Arg::kGradV, 0, Arg::kV},
    {Arg::kCuSeqlensQ, kInts},
    {Arg::kCuSeqlensK, kInts},
    {Arg::kSequsedQ, kInts},
    {Arg::kSequsedK, kInts},
    {Arg::kLeftpadK, kInts},
    {Arg::kMask, bit(DType::kBool) | bit(DType::kBits)},
    {Arg::kKeyBegin, kInts},
    {Arg::kKeyEnd, kInts},
    {Arg::kPrefixLens, kInts},
    {Arg::kAlibiSlopes, bit(DType::kF32)},
    {Arg::kBias, kReals, Arg::kCount, true},
    {Arg::kSink, bit(DType::kF32)},
    {Arg::kGradBias, bit(DType::kF32), Arg::kBias},
    {Arg::kGradSink, bit(DType::kF32), Arg::kCount, true},
    {Arg::kCacheSeqlens, kInts},
    {Arg::kCacheBatchIdx, kInts},
    {Arg::kPageTable, kInts},
    {Arg::kKNew, 0, Arg::kK},
    {Arg::kVNew, 0, Arg::kV},
    {Arg::kCuSeqlensKNew, kInts},
    {Arg::kRotaryCos, bit(DType::kF32), Arg::kK},
    {Arg::kRotarySin, 0, Arg::kRotaryCos},
    {Arg::kRotarySeqlens, kInts},
    {Arg::kPartialO, kReals},
    {Arg::kPartialLse, bit(DType::kF32)},
    {Arg::kErrorFlag, kInts},
};

// "f32, f16 or bf16"
std::string names_of(uint32_t types) {
    std::vector<const char*> names;
    for (unsigned i = 0; i < 32; ++i) {
        if ((types >> i & 1u) != 0) names.push_back(name_of(static_cast<DType>(i)));
    }
    std::string text;
    for (size_t i = 0; i < names.size(); ++i)
        text += std::string(i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
    return text;
}

Status check_dtype(Arg arg, DType dtype, uint32_t allowed) {
    const auto index = static_cast<unsigned>(dtype);
    if (index < 32 && (allowed >> index & 1u) != 0) return {};
    return refuse(arg, "the dtype is {}; {} is allowed", name_of(dtype), names_of(allowed));
}

Status check_dtype_row(const Problem& problem, const DTypeRow& row) {
    if (!problem.has(row.arg)) return {};
    const DType dtype = problem[row.arg].dtype;
    uint32_t allowed = row.types;
    if (row.f64_beside_f64 && problem[Arg::kQ].dtype == DType::kF64) allowed |= kDoubles;
    if (row.like == Arg::kCount) return check_dtype(row.arg, dtype, allowed);
    const DType like = problem[row.like].dtype;
    if (dtype == like) return {};
    if (allowed == 0)
        return refuse(row.arg, "the dtype is {}; {}, that of {}, is allowed", name_of(dtype), name_of(like),
                      name_of(row.like));
    return check_dtype(row.arg, dtype, allowed | bit(like));
}

// q, k and v have one dtype. The odd one of three is named; k where all differ, or where there is no q (append).
Status check_data_dtypes(const Problem& problem) {
    for (const Arg arg : {Arg::kQ, Arg::kK, Arg::kV}) {
        if (!problem.has(arg)) continue;
        if (Status status = check_dtype(arg, problem[arg].dtype, kReals | kDoubles); !status.ok()) return status;
    }
    if (!problem.has(Arg::kK)) return {};
    const DType k = problem[Arg::kK].dtype;
    const DType v = problem[Arg::kV].dtype;
    const DType q = problem.has(Arg::kQ) ? problem[Arg::kQ].dtype : v;
    const auto odd = [](Arg arg, DType dtype, const char* others, DType other) {
        return refuse(arg, "the dtype is {}, but that of {} is {}; q, k and v have one dtype", name_of(dtype), others,
                      name_of(other));
    };
    if (q == k && k == v) return {};
    if (k == v) return odd(Arg::kQ, q, "k and v", k);
    if (q == k) return odd(Arg::kV, v, "q and k", q);
    if (!problem.has(Arg::kQ)) return odd(Arg::kK, k, "v", v);
    return odd(Arg::kK, k, q == v ? "q and v" : "q", q);
}

std::vector<Arg> outputs_of(const Problem& problem) {
    switch (problem.op) {
    case Op::kForward:
    case Op::kCombine: return {Arg::kO, Arg::kLse};
    case Op::kBackward: return {Arg::kGradQ, Arg::kGradK, Arg::kGradV, Arg::kGradBias, Arg::kGradSink};
    case Op::kDecode:
        if (problem.has(Arg::kKNew)) return {Arg::kO, Arg::kLse, Arg::kK, Arg::kV};
        return {Arg::kO, Arg::kLse};
    case Op::kAppend: return {Arg::kK, Arg::kV};
    }
    return {};
}

// The axis whose steps land on elements that axes of smaller strides reach, or -1. Sorted by stride, every step has to pass
// all that lies before it: enough for distinct elements, and true of every layout made by slicing and transposing.
int overlapping_axis(const TensorDesc& tensor) {
    std::vector<int> axes;
    for (int axis = 0; axis < tensor.rank; ++axis) {
        if (tensor.dim(axis) > 1) axes.push_back(axis);
    }
    std::sort(axes.begin(), axes.end(), [&](int a, int b) { return tensor.step(a) < tensor.step(b); });
    int64_t reach = 0;
    for (const int axis : axes) {
        if (tensor.step(axis) <= reach) return axis;
        reach += (tensor.dim(axis) - 1) * tensor.step(axis);
    }
    return -1;
}

}  // namespace

Status check_descriptors(const Problem& problem) {
    for (size_t i = 0; i < kNumArgs; ++i) {
        const Arg arg = static_cast<Arg>(i);
        if (!problem.has(arg)) continue;
        if (Status status = check_axes(arg, problem[arg]); !status.ok()) return status;
        if (Status status = check_extent(arg, problem[arg]); !status.ok()) return status;
    }
    return {};
}

Status check_dtypes(const Problem& problem) {
    if (Status status = check_data_dtypes(problem); !status.ok()) return status;
    for (const DTypeRow& row : kDTypeRows) {
        if (Status status = check_dtype_row(problem, row); !status.ok()) return status;
    }
    if (!problem.has(Arg::kO)) return {};
    if (problem.op == Op::kCombine) return check_dtype(Arg::kO, problem[Arg::kO].dtype, kReals);
    return check_dtype_row(problem, {Arg::kO, 0, Arg::kQ});
}

Status check_outputs(const Problem& problem) {
    for (const Arg arg : outputs_of(problem)) {
        const TensorDesc& tensor = problem[arg];
        if (!problem.has(arg) || tensor.num_elements() == 0) continue;
        if (const int axis = overlapping_axis(tensor); axis >= 0)
            return refuse(
                arg, "stride {} of axis {} (size {}) makes elements of {} overlap; an output needs distinct elements",
                tensor.step(axis), axis, tensor.dim(axis), to_string(tensor));
    }
    return {};
}

}  // namespace tilewise::rules
