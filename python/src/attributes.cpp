// See attributes.hpp. Element types and devices are recognised by name, so no library is imported.
#include "attributes.hpp"

#include <cstring>
#include <string_view>

namespace tilewise::python {

namespace {

struct NamedType {
    std::string_view name;
    int32_t dtype;
};

constexpr NamedType kTypes[] = {
    {"float32", TILEWISE_F32}, {"float16", TILEWISE_F16}, {"bfloat16", TILEWISE_BF16}, {"float64", TILEWISE_F64},
    {"int32", TILEWISE_I32},   {"int64", TILEWISE_I64},   {"bool", TILEWISE_BOOL},     {"uint8", TILEWISE_BITS},
    {"f32", TILEWISE_F32},     {"f16", TILEWISE_F16},     {"bf16", TILEWISE_BF16},     {"f64", TILEWISE_F64},
    {"i32", TILEWISE_I32},     {"i64", TILEWISE_I64},     {"bits", TILEWISE_BITS},
};

// "torch.bfloat16" or "bf16"; any object whose text that is. TILEWISE_NONE, with an exception set, for others.
int32_t dtype_of(const char* argument, PyObject* type) {
    const Ref text(PyObject_Str(type));
    const Ref bytes(text ? PyUnicode_AsUTF8String(text.get()) : nullptr);
    const char* utf8 = bytes ? PyBytes_AsString(bytes.get()) : nullptr;
    if (utf8 == nullptr) return TILEWISE_NONE;
    std::string_view name(utf8);
    name.remove_prefix(name.rfind('.') + 1);
    for (const NamedType& known : kTypes) {
        if (known.name == name) return known.dtype;
    }
    PyErr_Format(PyExc_TypeError,
                 "%s: the dtype is %S; float16, bfloat16, float32, float64, int32, int64, bool and uint8 are served",
                 argument, text.get());
    return TILEWISE_NONE;
}

// A dtype is one object, so its code is looked up by text only once.
int32_t known_dtype(const char* argument, PyObject* type) {
    static PyObject* const codes = PyDict_New();
    if (codes == nullptr) return TILEWISE_NONE;
    if (PyObject* code = PyDict_GetItemWithError(codes, type); code != nullptr)
        return static_cast<int32_t>(PyLong_AsLong(code));
    if (PyErr_Occurred() != nullptr) return TILEWISE_NONE;
    const int32_t dtype = dtype_of(argument, type);
    if (dtype == TILEWISE_NONE) return dtype;
    const Ref code(PyLong_FromLong(dtype));
    return code && PyDict_SetItem(codes, type, code.get()) == 0 ? dtype : TILEWISE_NONE;
}

// Up to TILEWISE_MAX_RANK numbers of a tuple; the library refuses a higher rank.
bool read_numbers(PyObject* sequence, int64_t* numbers, int32_t* count) {
    const Py_ssize_t size = PySequence_Size(sequence);
    if (size < 0) return false;
    *count = static_cast<int32_t>(size);
    if (size > TILEWISE_MAX_RANK) return true;
    for (Py_ssize_t i = 0; i < size; ++i) {
        const Ref item(PySequence_GetItem(sequence, i));
        const Ref index(item ? PyNumber_Index(item.get()) : nullptr);
        if (!index) return false;
        numbers[i] = PyLong_AsLongLong(index.get());
        if (numbers[i] == -1 && PyErr_Occurred() != nullptr) return false;
    }
    return true;
}

bool set_device(const char* argument, PyObject* type, PyObject* index, TensorSource* source) {
    if (PyUnicode_CompareWithASCIIString(type, "cpu") == 0) return true;
    if (PyUnicode_CompareWithASCIIString(type, "meta") == 0) {
        source->is_meta = true;
        return true;
    }
    if (PyUnicode_CompareWithASCIIString(type, "cuda") != 0) {
        PyErr_Format(PyExc_NotImplementedError, "%s: is on device %S; cpu and cuda devices are served", argument, type);
        return false;
    }
    const long id = index == Py_None ? 0 : PyLong_AsLong(index);
    if (id == -1 && PyErr_Occurred() != nullptr) return false;
    source->device = {dlpack::kCuda, static_cast<int32_t>(id)};
    return true;
}

bool read_address(PyObject* address, TensorSource* source) {
    const Ref index(PyNumber_Index(address));
    if (!index) return false;
    source->tensor.data = PyLong_AsVoidPtr(index.get());
    return PyErr_Occurred() == nullptr;
}

void set_contiguous(tilewise_tensor* tensor) {
    int64_t stride = 1;
    for (int axis = tensor->rank - 1; axis >= 0 && tensor->rank <= TILEWISE_MAX_RANK; --axis) {
        tensor->stride[axis] = stride;
        stride *= tensor->shape[axis];
    }
}

}  // namespace

bool read_attributes(const char* argument, PyObject* object, TensorSource* source) {
    const Ref dtype(PyObject_GetAttrString(object, "dtype"));
    const Ref shape(PyObject_GetAttrString(object, "shape"));
    const Ref strides(PyObject_CallMethod(object, "stride", nullptr));
    const Ref device(PyObject_GetAttrString(object, "device"));
    if (!dtype || !shape || !strides || !device) return false;
    const Ref type(PyObject_GetAttrString(device.get(), "type"));
    const Ref index(PyObject_GetAttrString(device.get(), "index"));
    if (!type || !index || !set_device(argument, type.get(), index.get(), source)) return false;

    tilewise_tensor& tensor = source->tensor;
    tensor.dtype = known_dtype(argument, dtype.get());
    if (tensor.dtype == TILEWISE_NONE) return false;
    int32_t stride_count = 0;
    if (!read_numbers(shape.get(), tensor.shape, &tensor.rank)) return false;
    if (!read_numbers(strides.get(), tensor.stride, &stride_count)) return false;
    if (source->is_meta) return true;
    const Ref address(PyObject_CallMethod(object, "data_ptr", nullptr));
    return address && read_address(address.get(), source);
}

bool read_tuple(const char* argument, PyObject* tuple, TensorSource* source) {
    PyObject *address, *dtype, *shape, *strides;
    const char* device;
    if (PyArg_ParseTuple(tuple, "OOOOs", &address, &dtype, &shape, &strides, &device) == 0) {
        PyErr_Clear();
        return refuse_type(argument, "a tensor, or (address, dtype, shape, strides, device),", tuple);
    }
    tilewise_tensor& tensor = source->tensor;
    tensor.dtype = known_dtype(argument, dtype);
    int32_t stride_count = 0;
    if (tensor.dtype == TILEWISE_NONE || !read_numbers(shape, tensor.shape, &tensor.rank)) return false;
    if (strides == Py_None)
        set_contiguous(&tensor);
    else if (!read_numbers(strides, tensor.stride, &stride_count))
        return false;
    if (strides != Py_None && stride_count != tensor.rank) {
        PyErr_Format(PyExc_ValueError, "%s: has %d axes, but %d strides", argument, static_cast<int>(tensor.rank),
                     static_cast<int>(stride_count));
        return false;
    }
    const char* colon = std::strchr(device, ':');
    const Ref type(PyUnicode_FromStringAndSize(
        device, colon != nullptr ? colon - device : static_cast<Py_ssize_t>(std::strlen(device))));
    const Ref index(PyLong_FromString(colon != nullptr ? colon + 1 : "0", nullptr, 10));
    if (!type || !index || !set_device(argument, type.get(), index.get(), source)) return false;
    return source->is_meta || read_address(address, source);
}

}  // namespace tilewise::python
