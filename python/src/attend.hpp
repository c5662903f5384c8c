// The common call of attention on torch's tensors in one step: no gradient, no trace, a new output, options that are fields by another
// name. Every other call goes through the package's Python files, which would serve this one too, only slower.
#pragma once

#include "python.hpp"

namespace tilewise::python {

// Takes a tuple of what is needed of torch:
//   types: tuple of torch.Tensor and its subclasses that torch treats like it
//   questions: tuple of callables; any that answers with something true tells of a trace, a transform or a mode that must see a call
//   is_grad_enabled: callable
//   forward_ad: module, whose _current_level is at least 0 under forward-mode differentiation
//   empty_like: callable
//   allocate: as for run()
//   fields: dict, from the names of options to those of fields; a call with another option is not common
PyObject* bind_torch(PyObject* arguments);

// is_plain(*values): whether no value asks for a gradient or is of a type with a dispatch of its own, and nothing must see the call.
PyObject* is_plain(PyObject* const* values, Py_ssize_t count);

// attend(q, k, v, options) -> o; None, before anything has happened, where the call is not a common one.
PyObject* attend(PyObject* const* values, Py_ssize_t count);

}  // namespace tilewise::python
