// The parts of validate and check_values, one function a topic, each the first broken rule or ok. Later ones rely on earlier
// ones: shapes are compared only of tensors that are well-formed, sizes are read only of shapes that agree.
// Private to core/validate*.cpp and core/values*.cpp, because it shows fmt.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "core/problem.hpp"
#include "core/status.hpp"

namespace tilewise::rules {

// "<name>: <what is wrong with the value; what is allowed>"
template <class... T> Status refuse(const char* name, fmt::format_string<T...> text, T&&... values) {
    return Status::invalid(fmt::format("{}: {}", name, fmt::format(text, std::forward<T>(values)...)));
}
template <class... T> Status refuse(Arg arg, fmt::format_string<T...> text, T&&... values) {
    return refuse(name_of(arg), text, std::forward<T>(values)...);
}

// validate_arguments.cpp: what is given, what is missing, what has no effect, what contradicts.
Status check_arguments(const Problem& problem);
// validate_tensors.cpp: each tensor alone.
Status check_descriptors(const Problem& problem);
Status check_dtypes(const Problem& problem);
Status check_outputs(const Problem& problem);
// validate_shapes.cpp: tensors against each other.
Status check_shapes(const Problem& problem);
Status check_head_counts(const Problem& problem);
// validate_lengths.cpp: limits of lengths, the cache, and everything of shape (batch, head, query, key).
Status check_lengths(const Problem& problem);
Status check_cache(const Problem& problem);
Status check_pairs(const Problem& problem);
// validate_options.cpp: the numbers.
Status check_mask(const Problem& problem);
Status check_score(const Problem& problem);
Status check_options(const Problem& problem);

// True where axes 1 and 2 of (batch, length, heads, dim) look exchanged: heads far above the length.
bool looks_swapped(const TensorDesc& tensor);

}  // namespace tilewise::rules
