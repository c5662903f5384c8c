// Whether a call is the one that a plan was made for.
#pragma once

#include "core/problem.hpp"
#include "core/status.hpp"

namespace tilewise::api {

// Shapes, strides and options must be equal; a base address may be aligned better than planned, not worse; the dropout seed and offset
// are the call's own, if it drops at all. A failure names the first argument that differs.
Status check_same(const Problem& planned, const Problem& called);

}  // namespace tilewise::api
