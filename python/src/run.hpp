// The module's two verbs: run an operation, and say how it would run.
#pragma once

#include "call.hpp"

namespace tilewise::python {

// Plans (through the cache) and launches; on a CPU without the GIL. False with an exception set.
bool launch(const Call& call);

// Reads and launches. None, or null with an exception set.
PyObject* run(const Arguments& arguments);

// (kernel, text, json, workspace_bytes) of the plan.
PyObject* explain(const Arguments& arguments);

}  // namespace tilewise::python
