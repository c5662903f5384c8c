// From the structs of the C header to core's types: a Problem (no pointers), and the pointers as Arguments.
// Here is checked what a Problem cannot express any more: struct_size, unknown flags and enumerators, ranks that do not fit, values
// without the flag that makes them hold. Everything else is validate's.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/plan.hpp"
#include "core/problem.hpp"
#include "core/status.hpp"
#include "tilewise/tilewise.h"

namespace tilewise::api {

struct Call {
    Problem problem;
    Arguments arguments;
};

// The number of an enumerator that came from C, where it may be any: to read it as the enumeration would be undefined behaviour.
template <class Enumeration> int32_t number_of(const Enumeration& enumerator) {
    static_assert(sizeof(Enumeration) == sizeof(int32_t));
    int32_t number;
    std::memcpy(&number, &enumerator, sizeof number);
    return number;
}

// `op` is a tilewise_op.
Status read_call(int32_t op, const tilewise_attention* attention, Call* call);
Status read_call(const tilewise_combination* combination, Call* call);

// Whether `called` is byte for byte the call that was read before as `known`, but for addresses, none of which is aligned worse;
// these go to `arguments`. False may also mean that only a longer look can tell.
bool read_again(const tilewise_attention& known, const tilewise_attention& called, Arguments* arguments);

}  // namespace tilewise::api
