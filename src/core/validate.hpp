// The two gates of a call. `validate` looks at mathematics and layout only: no pointer, no device. `check_values` reads the
// integer tensors (lengths, page ids, cache rows) where they lie in host memory, before anything is written.
// Every message names the argument as the caller knows it, its value, and what is allowed.
#pragma once

#include "core/plan.hpp"
#include "core/problem.hpp"
#include "core/status.hpp"

namespace tilewise {

constexpr int64_t kMaxHeadDim = 256;
constexpr int64_t kMaxHeadDimV = 512;
constexpr int32_t kMaxNumSplits = 256;
constexpr int32_t kMaxNumThreads = 1024;
// Elements of one tensor and sequences of one call: far above any memory, low enough that no product of sizes leaves 64 bits.
constexpr int64_t kMaxElements = int64_t{1} << 48;
constexpr int64_t kMaxBatch = (int64_t{1} << 31) - 1;

Status validate(const Problem& problem);

// A sentence for a valid problem that looks like (batch, heads, length, dim) given as (batch, length, heads, dim); empty otherwise.
std::string layout_hint(const Problem& problem);

// Pointers: given tensors have a non-null pointer that is aligned to its element (empty tensors may be null).
Status check_pointers(const Problem& problem, const Arguments& arguments);

// cu_seqlens start at 0, never decrease and end within the tensor; seqused, leftpad, cache_seqlens and max_seqlen bounds hold;
// page ids and cache rows are in range where a sequence uses them; new keys fit the cache. Host memory only.
Status check_values(const Problem& problem, const Arguments& arguments);

}  // namespace tilewise
