// What slows a problem down although it is served: layouts off the fast path, double precision, a layout that looks swapped.
#include <fmt/format.h>

#include "core/plan_parts.hpp"
#include "core/validate.hpp"

namespace tilewise {
namespace {

// Tensors whose last axis a kernel runs along.
constexpr Arg kVectorArgs[] = {Arg::kQ,     Arg::kK,     Arg::kV,    Arg::kO,    Arg::kGradO,   Arg::kGradQ,
                               Arg::kGradK, Arg::kGradV, Arg::kKNew, Arg::kVNew, Arg::kPartialO};
constexpr int kVectorBytes = 16;

// Largest power of two up to 16 bytes that divides the address of every row.
int64_t row_alignment(const TensorDesc& tensor) {
    int64_t alignment = tensor.alignment;
    for (int axis = 0; axis + 1 < tensor.rank; ++axis) {
        if (tensor.dim(axis) <= 1) continue;
        while (alignment > 1 && (tensor.step(axis) * size_of(tensor.dtype)) % alignment != 0) alignment /= 2;
    }
    return alignment;
}

}  // namespace

std::vector<std::string> notes_of(const Problem& problem, const DeviceInfo& device) {
    std::vector<std::string> notes;
    for (const Arg arg : kVectorArgs) {
        const TensorDesc& tensor = problem[arg];
        if (!tensor.given() || tensor.num_elements() == 0) continue;
        const int last = tensor.rank - 1;
        if (tensor.dim(last) > 1 && tensor.step(last) != 1)
            notes.push_back(fmt::format("{}: last dimension has stride {}: elements are gathered one by one",
                                        name_of(arg), tensor.step(last)));
        else if (device.kind == DeviceKind::kCuda && row_alignment(tensor) < kVectorBytes)
            notes.push_back(
                fmt::format("{}: rows start at multiples of {} bytes, not of {}: they are not moved by wide copies",
                            name_of(arg), row_alignment(tensor), kVectorBytes));
    }
    if (element_type_of(problem) == DType::kF64)
        notes.emplace_back(
            "f64 elements: computed by the reference loops, which are made to be exact and not to be fast");
    if (std::string hint = layout_hint(problem); !hint.empty()) notes.push_back(std::move(hint));
    return notes;
}

}  // namespace tilewise
