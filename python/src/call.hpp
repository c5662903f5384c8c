// A call as the C structs want it, filled from keyword arguments: Python names are the names of the fields of tilewise.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensors.hpp"

namespace tilewise::python {

struct Call {
    tilewise_op op = TILEWISE_FORWARD;
    tilewise_attention attention{};
    tilewise_combination combination{};  // instead of attention where op is TILEWISE_COMBINE
    std::string kernel;                  // what options.kernel points to

    bool has_device = false;
    dlpack::Device device{dlpack::kCpu, 0};  // of the first tensor; all others must agree
    const char* device_source = nullptr;     // and its argument
    const dlpack::ExchangeApi* api = nullptr;
    std::vector<Ref> owners;

    PyObject* device_name = nullptr;  // borrowed: "cpu", "cuda:0", "recorded:h200"; null: where the tensors are
    PyObject* allocate = nullptr;     // borrowed: callable (bytes, GPU) -> tensor, for a workspace on a GPU
    PyObject* stream = nullptr;       // borrowed: address of a CUDA stream

    Call() {
        attention.struct_size = sizeof attention;
        combination.struct_size = sizeof combination;
    }
    const tilewise_options& options() const { return op == TILEWISE_COMBINE ? combination.options : attention.options; }
};

// The arguments of a METH_FASTCALL | METH_KEYWORDS function whose only positional one is the operation.
struct Arguments {
    PyObject* const* values;
    Py_ssize_t num_positional;
    PyObject* names;  // tuple, or null
};

// Once, at import. False with an exception set.
bool prepare_fields();

// None means "not given". False with an exception set.
bool read_call(const Arguments& arguments, Purpose purpose, Call* call);

// One argument of call->op, by the name of its field. The same.
bool read_argument(PyObject* name, PyObject* value, Purpose purpose, Call* call);

// All that a plan depends on, without the addresses: alignments, element types, shapes, strides and options. Appended to `key`.
void append_key(const Call& call, std::vector<std::int64_t>* key);

// The names of all keyword arguments of an operation, as a list. New reference.
PyObject* field_names();

}  // namespace tilewise::python
