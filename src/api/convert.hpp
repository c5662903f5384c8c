// From the structs of the C header to core's types: a Problem (no pointers), and the pointers as Arguments.
// Here is checked what a Problem cannot express any more: struct_size, unknown flags and enumerators, ranks that do not fit, values
// without the flag that makes them hold. Everything else is validate's.
#pragma once

#include "core/plan.hpp"
#include "core/problem.hpp"
#include "core/status.hpp"
#include "tilewise/tilewise.h"

namespace tilewise::api {

struct Call {
    Problem problem;
    Arguments arguments;
};

Status read_call(tilewise_op op, const tilewise_attention* attention, Call* call);
Status read_call(const tilewise_combination* combination, Call* call);

}  // namespace tilewise::api
