// Tensors that are read through Python attributes: torch's, where there is no exchange table, and plain tuples.
#pragma once

#include "tensors.hpp"

namespace tilewise::python {

// data_ptr(), shape, stride(), dtype and device of a torch tensor.
bool read_attributes(const char* argument, PyObject* object, TensorSource* source);

// (address, "bf16", shape, strides or None, "cpu" or "cuda:0"); the caller keeps the memory.
bool read_tuple(const char* argument, PyObject* tuple, TensorSource* source);

}  // namespace tilewise::python
