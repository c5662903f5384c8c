// Names of arguments in messages: the library and the table of fields use those of tilewise.h, a caller in Python knows its own.
#pragma once

#include <string>
#include <string_view>

#include "python.hpp"
#include "tilewise/tilewise.h"

namespace tilewise::python {

// The message of a call of `op` in the names of Python's functions. Quoted text stays: it is the caller's.
std::string with_python_names(std::string_view message, tilewise_op op);

// Puts the exception that is set into these names.
void rename_arguments(tilewise_op op);

}  // namespace tilewise::python
