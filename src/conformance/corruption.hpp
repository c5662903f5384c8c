// Ways to break a well-formed call in one place, each with the names of which the refusal has to mention one.
#pragma once

#include <string>
#include <vector>

#include "conformance/instance.hpp"
#include "conformance/random.hpp"

namespace tilewise::conformance {

struct Corruption {
    std::string what;                // for people
    std::vector<std::string> names;  // any of these in the message; empty: the call could not be broken this way
};

// Integers that the call reads: lengths, page ids, cache rows. Changes the instance before it is laid out in memory.
Corruption corrupt_values(Instance& instance, Random& random);
// Shapes, types, strides, pointers, options. Changes the call itself.
Corruption corrupt_call(const Instance& instance, Attention& attention, Random& random);

// Names of all arguments of the API, as they may begin a message.
bool is_argument_name(const std::string& name);

}  // namespace tilewise::conformance
