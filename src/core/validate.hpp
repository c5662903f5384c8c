// The two gates of a call. `validate` looks at mathematics and layout only: no pointer, no device. `check_values` reads the
// integer tensors (lengths, page ids, cache rows) where they lie in host memory, before anything is written.
// Every message names the argument as the caller knows it, its value, and what is allowed.
#pragma once

#include "core/plan.hpp"
#include "core/problem.hpp"
#include "core/status.hpp"

namespace tilewise {

Status validate(const Problem& problem);

// Pointers: given tensors have a non-null pointer that is aligned to its element (empty tensors may be null).
Status check_pointers(const Problem& problem, const Arguments& arguments);

// cu_seqlens start at 0, never decrease and end within the tensor; seqused, leftpad, cache_seqlens and max_seqlen bounds hold;
// page ids and cache rows are in range where a sequence uses them; new keys fit the cache. Host memory only.
Status check_values(const Problem& problem, const Arguments& arguments);

}  // namespace tilewise
