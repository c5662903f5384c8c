// tilewise._native: the C interface of the library for Python, one binary for CPython 3.10 and up. The package's Python files are its
// only users: it checks what could crash, and leaves everything else to the library's own messages.
//
//   run(op, **fields) -> None       fields are named as in tilewise.h; allocate=, stream= for a GPU
//   explain(op, **fields) -> (kernel, text, json, workspace_bytes); device= plans for another device
//   attend(q, k, v, options) -> o   the common call of torch, see attend.hpp
#include <exception>
#include <new>

#include "attend.hpp"
#include "plans.hpp"
#include "run.hpp"

namespace tilewise::python {
namespace {

// No C++ exception may pass through the interpreter.
template <class Body> PyObject* fenced(Body&& body) noexcept {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_Format(PyExc_RuntimeError, "a fault of the module: %s", error.what());
        return nullptr;
    }
}

PyObject* run_entry(PyObject*, PyObject* const* values, Py_ssize_t count, PyObject* names) {
    return fenced([&] { return run({values, count, names}); });
}

PyObject* explain_entry(PyObject*, PyObject* const* values, Py_ssize_t count, PyObject* names) {
    return fenced([&] { return explain({values, count, names}); });
}

PyObject* attend_entry(PyObject*, PyObject* const* values, Py_ssize_t count) {
    return fenced([&] { return attend(values, count); });
}

PyObject* is_plain_entry(PyObject*, PyObject* const* values, Py_ssize_t count) { return is_plain(values, count); }
PyObject* bind_torch_entry(PyObject*, PyObject* arguments) { return bind_torch(arguments); }
PyObject* version_entry(PyObject*, PyObject*) { return PyUnicode_FromString(tilewise_version()); }

PyObject* kernels_entry(PyObject*, PyObject*) {
    Ref list(PyList_New(0));
    for (int32_t i = 0; list && i < tilewise_kernel_count(); ++i) {
        const Ref json(PyUnicode_FromString(tilewise_kernel_json(i)));
        if (!json || PyList_Append(list.get(), json.get()) != 0) return nullptr;
    }
    return list.release();
}

PyObject* devices_entry(PyObject*, PyObject* include_recorded) {
    const int recorded = PyObject_IsTrue(include_recorded);
    if (recorded < 0) return nullptr;
    Ref list(PyList_New(0));
    for (int32_t i = 0; list && i < tilewise_device_count(recorded); ++i) {
        const char* name = tilewise_device_name(i);
        const tilewise_device* device = device_of(name);
        if (device == nullptr) return nullptr;
        const Ref pair(Py_BuildValue("(ss)", name, tilewise_device_json(device)));
        if (!pair || PyList_Append(list.get(), pair.get()) != 0) return nullptr;
    }
    return list.release();
}

PyObject* describe_entry(PyObject*, PyObject* object) {
    return fenced([&]() -> PyObject* {
        TensorSource source;
        if (!read_tensor("tensor", object, Purpose::kLaunch, &source)) return nullptr;
        const tilewise_tensor& tensor = source.tensor;
        const Py_ssize_t rank = tensor.rank <= TILEWISE_MAX_RANK ? tensor.rank : TILEWISE_MAX_RANK;
        const Ref shape(PyTuple_New(rank)), strides(PyTuple_New(rank)), address(PyLong_FromVoidPtr(tensor.data));
        if (!shape || !strides || !address) return nullptr;
        for (Py_ssize_t axis = 0; axis < rank; ++axis) {
            PyTuple_SetItem(shape.get(), axis, PyLong_FromLongLong(tensor.shape[axis]));
            PyTuple_SetItem(strides.get(), axis, PyLong_FromLongLong(tensor.stride[axis]));
        }
        return Py_BuildValue("(OiOO(ii)O)", address.get(), static_cast<int>(tensor.dtype), shape.get(), strides.get(),
                             static_cast<int>(source.device.type), static_cast<int>(source.device.id),
                             source.is_read_only ? Py_True : Py_False);
    });
}

PyObject* allow_entry(PyObject*, PyObject* allowed) {
    const int answer = PyObject_IsTrue(allowed);
    if (answer < 0) return nullptr;
    allow_exchange_table(answer != 0);
    Py_RETURN_NONE;
}

PyObject* cached_entry(PyObject*, PyObject*) { return PyLong_FromSize_t(num_cached_plans()); }
PyObject* fields_entry(PyObject*, PyObject*) { return field_names(); }

template <class Function> PyCFunction as_method(Function* function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

PyMethodDef methods[] = {
    {"run", as_method(run_entry), METH_FASTCALL | METH_KEYWORDS,
     "run(op, **fields): plan through the cache, and launch"},
    {"explain", as_method(explain_entry), METH_FASTCALL | METH_KEYWORDS,
     "explain(op, **fields) -> (kernel, text, json, workspace_bytes)"},
    {"attend", as_method(attend_entry), METH_FASTCALL,
     "attend(q, k, v, options) -> o, or None where the call is not a common one of torch"},
    {"is_plain", as_method(is_plain_entry), METH_FASTCALL,
     "is_plain(*values) -> whether torch need not know of a call with these"},
    {"bind_torch", bind_torch_entry, METH_VARARGS,
     "bind_torch(types, questions, is_grad_enabled, forward_ad, empty_like, allocate, fields)"},
    {"version", version_entry, METH_NOARGS, "version() -> str"},
    {"kernels", kernels_entry, METH_NOARGS, "kernels() -> list of JSON objects"},
    {"devices", devices_entry, METH_O, "devices(include_recorded) -> list of (name, JSON object)"},
    {"fields", fields_entry, METH_NOARGS, "fields() -> names that run() and explain() take"},
    {"describe", describe_entry, METH_O, "describe(tensor) -> (address, dtype, shape, strides, device, is_read_only)"},
    {"allow_exchange_table", allow_entry, METH_O,
     "allow_exchange_table(bool): for tests of the other ways to a tensor"},
    {"num_cached_plans", cached_entry, METH_NOARGS, "num_cached_plans() -> int"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "tilewise._native",
                          "The C interface of Tilewise.",
                          -1,
                          methods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

bool add_operations(PyObject* module) {
    return PyModule_AddIntConstant(module, "FORWARD", TILEWISE_FORWARD) == 0 &&
           PyModule_AddIntConstant(module, "BACKWARD", TILEWISE_BACKWARD) == 0 &&
           PyModule_AddIntConstant(module, "DECODE", TILEWISE_DECODE) == 0 &&
           PyModule_AddIntConstant(module, "APPEND", TILEWISE_APPEND) == 0 &&
           PyModule_AddIntConstant(module, "COMBINE", TILEWISE_COMBINE) == 0;
}

}  // namespace
}  // namespace tilewise::python

PyMODINIT_FUNC PyInit__native() {
    using namespace tilewise::python;
    Ref module(PyModule_Create(&definition));
    if (!module || !add_operations(module.get()) || !prepare_fields()) return nullptr;
    return module.release();
}
