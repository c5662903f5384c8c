// How each kind of object is read (tensors.hpp). What a type offers is looked up once and kept for the few types that programs mix:
// torch.Tensor and torch.nn.Parameter alternate in one call.
#include "tensors.hpp"

#include <array>
#include <cstring>

#include "attributes.hpp"

namespace tilewise::python {

namespace {

enum class Way { kNone, kTable, kAttributes, kCapsule };

struct KnownType {
    PyObject* type = nullptr;  // owned: an address must not be reused by another type
    Way way = Way::kNone;
    const dlpack::ExchangeApi* api = nullptr;
};

bool use_tables = true;
std::array<KnownType, 8> known_types;
size_t next_known = 0;

// The table of the version that this module understands, or null.
const dlpack::ExchangeApi* table_of(PyObject* type) {
    const Ref attribute(PyObject_GetAttrString(type, "__dlpack_c_exchange_api__"));
    if (!attribute) {
        PyErr_Clear();
        return nullptr;
    }
    const char* name = "dlpack_exchange_api";
    if (!PyCapsule_IsValid(attribute.get(), name)) return nullptr;
    auto* api = static_cast<const dlpack::ExchangeApi*>(PyCapsule_GetPointer(attribute.get(), name));
    while (api != nullptr && api->version.major != 1) api = api->previous;
    return api != nullptr && api->borrow != nullptr && api->current_stream != nullptr ? api : nullptr;
}

KnownType examine(PyObject* type) {
    KnownType known{type};
    if (use_tables) known.api = table_of(type);
    if (known.api != nullptr)
        known.way = Way::kTable;
    else if (PyObject_HasAttrString(type, "data_ptr") != 0 && PyObject_HasAttrString(type, "stride") != 0)
        known.way = Way::kAttributes;
    else if (PyObject_HasAttrString(type, "__dlpack__") != 0)
        known.way = Way::kCapsule;
    return known;
}

const KnownType& known_type(PyObject* object) {
    PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
    for (const KnownType& known : known_types) {
        if (known.type == type) return known;
    }
    KnownType& slot = known_types[next_known++ % known_types.size()];
    const Ref evicted(slot.type);
    Py_INCREF(type);
    slot = examine(type);
    return slot;
}

int32_t dtype_of(const dlpack::DataType& type) {
    if (type.lanes != 1) return TILEWISE_NONE;
    switch (type.code << 8 | type.bits) {
    case dlpack::kFloat << 8 | 32: return TILEWISE_F32;
    case dlpack::kFloat << 8 | 16: return TILEWISE_F16;
    case dlpack::kFloat << 8 | 64: return TILEWISE_F64;
    case dlpack::kBfloat << 8 | 16: return TILEWISE_BF16;
    case dlpack::kInt << 8 | 32: return TILEWISE_I32;
    case dlpack::kInt << 8 | 64: return TILEWISE_I64;
    case dlpack::kBool << 8 | 8: return TILEWISE_BOOL;
    case dlpack::kUint << 8 | 8: return TILEWISE_BITS;
    default: return TILEWISE_NONE;
    }
}

bool set_device(const char* argument, dlpack::Device device, TensorSource* source) {
    switch (device.type) {
    case dlpack::kCpu:
    case dlpack::kCudaHost: source->device = {dlpack::kCpu, 0}; return true;
    case dlpack::kCuda:
    case dlpack::kCudaManaged: source->device = {dlpack::kCuda, device.id}; return true;
    default:
        PyErr_Format(PyExc_NotImplementedError,
                     "%s: is on a device of DLPack type %d; the CPU (1) and CUDA devices (2) are served", argument,
                     static_cast<int>(device.type));
        return false;
    }
}

bool refuse_dtype(const char* argument, PyObject* object) {
    Ref dtype(PyObject_GetAttrString(object, "dtype"));
    if (!dtype) {
        PyErr_Clear();
        dtype = Ref(PyUnicode_FromString("unknown to DLPack"));
    }
    if (dtype)
        PyErr_Format(
            PyExc_TypeError,
            "%s: the dtype is %S; float16, bfloat16, float32, float64, int32, int64, bool and uint8 are served",
            argument, dtype.get());
    return false;
}

bool read_dlpack(const char* argument, PyObject* object, const dlpack::Tensor& from, TensorSource* source) {
    tilewise_tensor& to = source->tensor;
    to.dtype = dtype_of(from.dtype);
    if (to.dtype == TILEWISE_NONE) return refuse_dtype(argument, object);
    if (from.data != nullptr) to.data = static_cast<char*>(from.data) + from.byte_offset;
    to.rank = from.ndim;
    if (from.ndim > TILEWISE_MAX_RANK)
        return set_device(argument, from.device, source);  // the library refuses the rank
    std::int64_t contiguous = 1;
    for (int axis = from.ndim - 1; axis >= 0; --axis) {
        to.shape[axis] = from.shape[axis];
        to.stride[axis] = from.strides != nullptr ? from.strides[axis] : contiguous;
        contiguous *= from.shape[axis];
    }
    return set_device(argument, from.device, source);
}

// What torch cannot describe by DLPack (a meta tensor, another device), its attributes describe well enough for a message.
bool read_table(const char* argument, PyObject* object, const dlpack::ExchangeApi* api, TensorSource* source) {
    dlpack::Tensor lent;
    if (api->borrow(object, &lent) != 0) {
        PyErr_Clear();
        return read_attributes(argument, object, source);
    }
    source->api = api;
    return read_dlpack(argument, object, lent, source);
}

// An export that the array's library refuses (read-only, an element type that it cannot describe) keeps that library's words.
Ref export_capsule(const char* argument, PyObject* object) {
    static PyObject* const version = Py_BuildValue("{s:(ii)}", "max_version", 1, 3);
    const Ref method(PyObject_GetAttrString(object, "__dlpack__"));
    const Ref no_arguments(PyTuple_New(0));
    if (!method || !no_arguments || version == nullptr) return {};
    Ref capsule(PyObject_Call(method.get(), no_arguments.get(), version));
    if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError) != 0) {  // older than max_version
        PyErr_Clear();
        capsule = Ref(PyObject_Call(method.get(), no_arguments.get(), nullptr));
    }
    if (capsule || PyErr_ExceptionMatches(PyExc_Exception) == 0) return capsule;
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    const Ref kept_type(type), kept_value(value), kept_trace(trace), name = type_name(object);
    if (name)
        PyErr_Format(PyExc_TypeError, "%s: %S does not export its memory by DLPack: %S", argument, name.get(),
                     value != nullptr ? value : type);
    return {};
}

// The capsule is left as it is: its own destructor gives the memory back when the call is over.
bool read_capsule(const char* argument, PyObject* object, TensorSource* source) {
    source->owner = export_capsule(argument, object);
    PyObject* capsule = source->owner.get();
    if (capsule == nullptr) return false;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        const auto* managed =
            static_cast<const dlpack::VersionedTensor*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
        if (managed->version.major != 1) {
            PyErr_Format(PyExc_TypeError, "%s: speaks DLPack %d; this version understands 1", argument,
                         static_cast<int>(managed->version.major));
            return false;
        }
        source->is_read_only = (managed->flags & dlpack::kReadOnly) != 0;
        return read_dlpack(argument, object, managed->tensor, source);
    }
    if (!PyCapsule_IsValid(capsule, "dltensor"))
        return refuse_type(argument, "a DLPack capsule from __dlpack__", capsule);
    const auto* managed = static_cast<const dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
    return read_dlpack(argument, object, managed->tensor, source);
}

}  // namespace

void allow_exchange_table(bool allowed) {
    use_tables = allowed;
    for (KnownType& known : known_types) {
        const Ref forgotten(known.type);
        known = {};
    }
}

bool read_tensor(const char* argument, PyObject* object, Purpose purpose, TensorSource* source) {
    if (PyTuple_Check(object)) return read_tuple(argument, object, source);
    const KnownType& known = known_type(object);
    switch (known.way) {
    case Way::kTable:
        if (purpose == Purpose::kLaunch) return read_table(argument, object, known.api, source);
        [[fallthrough]];  // a meta tensor has no DLPack form
    case Way::kAttributes: return read_attributes(argument, object, source);
    case Way::kCapsule: return read_capsule(argument, object, source);
    case Way::kNone: break;
    }
    return refuse_type(argument, "a tensor (torch, or an array with __dlpack__)", object);
}

}  // namespace tilewise::python
