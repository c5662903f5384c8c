// CPython's limited API (3.10 and up, one binary for all) with an owning reference. Everything in this folder is called with the GIL held.
#pragma once

#include <Python.h>

#include <utility>

namespace tilewise::python {

// Owns one reference; null is allowed and mostly means that an exception is set.
class Ref {
public:
    Ref() = default;
    explicit Ref(PyObject* owned) : object_(owned) {}
    Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Ref& operator=(Ref&& other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Ref() { Py_XDECREF(object_); }
    static Ref borrowed(PyObject* object) {
        Py_XINCREF(object);
        return Ref(object);
    }

    PyObject* get() const { return object_; }
    PyObject* release() { return std::exchange(object_, nullptr); }
    explicit operator bool() const { return object_ != nullptr; }

private:
    PyObject* object_ = nullptr;
};

// "numpy.ndarray", or null with an exception set.
inline Ref type_name(PyObject* object) {
    PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
    const Ref module(PyObject_GetAttrString(type, "__module__"));
    const Ref name(PyObject_GetAttrString(type, "__qualname__"));
    if (!module || !name) return {};
    const bool is_builtin =
        PyUnicode_Check(module.get()) && PyUnicode_CompareWithASCIIString(module.get(), "builtins") == 0;
    return Ref(is_builtin ? PyUnicode_FromFormat("%S", name.get())
                          : PyUnicode_FromFormat("%S.%S", module.get(), name.get()));
}

// Raises `TypeError: argument: expectation is expected, not the type of object`; returns false.
inline bool refuse_type(const char* argument, const char* expectation, PyObject* object) {
    const Ref name = type_name(object);
    if (name) PyErr_Format(PyExc_TypeError, "%s: %s is expected, not %S", argument, expectation, name.get());
    return false;
}

}  // namespace tilewise::python
