// Keyword arguments into the structs. Names are found in a dict: CPython caches the hash of a keyword, so this is one probe each.
#include "call.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "fields.hpp"

namespace tilewise::python {

namespace {

struct FieldTable {
    const Field* fields;
    size_t count;
    PyObject* index = nullptr;  // dict: name -> position
};

FieldTable attention_table{kAttentionFields, kNumAttentionFields};
FieldTable combination_table{kCombinationFields, kNumCombinationFields};

// Keywords that are not fields.
enum Extra : long { kDevice = 1000, kAllocate, kStream };

bool add_name(PyObject* index, const char* name, long position) {
    const Ref key(PyUnicode_InternFromString(name));
    const Ref value(PyLong_FromLong(position));
    return key && value && PyDict_SetItem(index, key.get(), value.get()) == 0;
}

bool prepare(FieldTable* table) {
    table->index = PyDict_New();
    if (table->index == nullptr) return false;
    for (size_t i = 0; i < table->count; ++i) {
        if (!add_name(table->index, table->fields[i].name, static_cast<long>(i))) return false;
    }
    return add_name(table->index, "device", kDevice) && add_name(table->index, "allocate", kAllocate) &&
           add_name(table->index, "stream", kStream);
}

FieldTable& table_of(const Call& call) { return call.op == TILEWISE_COMBINE ? combination_table : attention_table; }

char* struct_of(Call* call) {
    return call->op == TILEWISE_COMBINE ? reinterpret_cast<char*>(&call->combination)
                                        : reinterpret_cast<char*>(&call->attention);
}

template <class T> void store(char* at, T value) { std::memcpy(at, &value, sizeof value); }

bool read_integer(const Field& field, PyObject* value, char* at) {
    const Ref index(PyBool_Check(value) ? nullptr : PyNumber_Index(value));
    if (!index) {
        PyErr_Clear();
        return refuse_type(field.name, "an integer", value);
    }
    if (field.kind == Kind::kUint64) {
        const unsigned long long number = PyLong_AsUnsignedLongLong(index.get());
        if (PyErr_Occurred() != nullptr) {
            PyErr_Clear();
            PyErr_Format(PyExc_ValueError, "%s: %S is out of range; 0 to 2^64 - 1 is allowed", field.name, value);
            return false;
        }
        store<std::uint64_t>(at, number);
        return true;
    }
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(index.get(), &overflow);
    const bool fits = field.kind == Kind::kInt64 || (number >= std::numeric_limits<std::int32_t>::min() &&
                                                     number <= std::numeric_limits<std::int32_t>::max());
    if (overflow != 0 || !fits) {
        PyErr_Format(PyExc_ValueError, "%s: %S does not fit %d bits", field.name, value,
                     field.kind == Kind::kInt64 ? 64 : 32);
        return false;
    }
    if (field.kind == Kind::kInt64)
        store<std::int64_t>(at, number);
    else
        store<std::int32_t>(at, static_cast<std::int32_t>(number));
    return true;
}

bool read_float(const Field& field, PyObject* value, char* at) {
    const double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        return refuse_type(field.name, "a number", value);
    }
    store(at, static_cast<float>(number));
    return true;
}

// True, False, 0, 1, and the booleans of array libraries, which all call their type bool or bool_.
bool read_truth(const Field& field, PyObject* value, bool* truth) {
    if (value == Py_True || value == Py_False) {
        *truth = value == Py_True;
        return true;
    }
    const Ref name(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(value)), "__name__"));
    if (!name) return false;
    const bool is_boolean = PyLong_Check(value) || PyUnicode_CompareWithASCIIString(name.get(), "bool") == 0 ||
                            PyUnicode_CompareWithASCIIString(name.get(), "bool_") == 0;
    if (!is_boolean) return refuse_type(field.name, "True or False", value);
    const int answer = PyObject_IsTrue(value);
    *truth = answer > 0;
    return answer >= 0;
}

bool read_kernel(const Field& field, PyObject* value, Call* call, char* at) {
    if (!PyUnicode_Check(value)) return refuse_type(field.name, "the name of a kernel", value);
    const Ref utf8(PyUnicode_AsUTF8String(value));
    if (!utf8) return false;
    call->kernel = PyBytes_AsString(utf8.get());
    store(at, call->kernel.c_str());
    return true;
}

bool same(const dlpack::Device& a, const dlpack::Device& b) { return a.type == b.type && a.id == b.id; }

Ref name_of(const dlpack::Device& device) {
    if (device.type == dlpack::kCpu) return Ref(PyUnicode_FromString("cpu"));
    return Ref(PyUnicode_FromFormat("cuda:%d", static_cast<int>(device.id)));
}

bool note_device(const char* argument, const TensorSource& source, Call* call) {
    if (call->device_name != nullptr || source.is_meta) return true;  // what has no memory is wherever the others are
    if (!call->has_device) {
        call->has_device = true;
        call->device = source.device;
        call->device_source = argument;
        call->api = source.api;
        return true;
    }
    if (same(call->device, source.device)) return true;
    const Ref here = name_of(source.device), there = name_of(call->device);
    if (here && there)
        PyErr_Format(PyExc_ValueError, "%s: is on %S, but %s is on %S; all tensors of a call are on one device",
                     argument, here.get(), call->device_source, there.get());
    return false;
}

bool read_tensor_field(const Field& field, PyObject* value, Purpose purpose, Call* call) {
    TensorSource source;
    if (!read_tensor(field.name, value, purpose, &source) || !note_device(field.name, source, call)) return false;
    if (purpose == Purpose::kLaunch && source.is_meta) {
        PyErr_Format(PyExc_ValueError, "%s: is on the meta device and has no memory; explain() takes such tensors",
                     field.name);
        return false;
    }
    if (source.is_read_only && (field.written_by >> call->op & 1u) != 0) {
        PyErr_Format(PyExc_ValueError, "%s: is written by this call, but the array is read-only", field.name);
        return false;
    }
    store(struct_of(call) + field.offset, source.tensor);
    if (source.owner) call->owners.push_back(std::move(source.owner));
    return true;
}

void set_flag(const Field& field, Call* call) {
    char* at = struct_of(call) + field.flag_offset;
    std::uint32_t flags;
    std::memcpy(&flags, at, sizeof flags);
    store(at, flags | field.flag);
}

bool read_field(const Field& field, PyObject* value, Purpose purpose, Call* call) {
    char* at = struct_of(call) + field.offset;
    bool truth = false;
    switch (field.kind) {
    case Kind::kTensor: return read_tensor_field(field, value, purpose, call);
    case Kind::kKernel: return read_kernel(field, value, call, at);
    case Kind::kFlag:
        if (!read_truth(field, value, &truth)) return false;
        if (truth) set_flag(field, call);
        return true;
    case Kind::kFloat:
        if (!read_float(field, value, at)) return false;
        break;
    default:
        if (!read_integer(field, value, at)) return false;
        break;
    }
    if (field.flag != 0) set_flag(field, call);
    return true;
}

// One number for what of a tensor is small.
std::int64_t head_of(const tilewise_tensor& tensor, size_t position) {
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
    const int alignment = address == 0 ? 4 : std::min(std::countr_zero(address), 4);
    return static_cast<std::int64_t>(position) << 32 | alignment << 16 | tensor.rank << 8 | tensor.dtype;
}

void append_tensor(const tilewise_tensor& tensor, size_t position, std::vector<std::int64_t>* key) {
    key->push_back(head_of(tensor, position));
    const int rank = std::min(tensor.rank, TILEWISE_MAX_RANK);
    key->insert(key->end(), tensor.shape, tensor.shape + rank);
    key->insert(key->end(), tensor.stride, tensor.stride + rank);
}

// The given tensors, and how many they are: a key can be read in one way only.
void append_tensors(const Call& call, std::vector<std::int64_t>* key) {
    const FieldTable& table = table_of(call);
    const char* data = struct_of(const_cast<Call*>(&call));
    const size_t count_at = key->size();
    key->push_back(0);
    for (size_t i = 0; i < table.count; ++i) {
        if (table.fields[i].kind != Kind::kTensor) continue;
        const auto& tensor = *reinterpret_cast<const tilewise_tensor*>(data + table.fields[i].offset);
        if (tensor.dtype == TILEWISE_NONE) continue;
        append_tensor(tensor, i, key);
        ++(*key)[count_at];
    }
}

}  // namespace

bool prepare_fields() { return prepare(&attention_table) && prepare(&combination_table); }

bool read_argument(PyObject* name, PyObject* value, Purpose purpose, Call* call) {
    const FieldTable& table = table_of(*call);
    PyObject* position = PyDict_GetItemWithError(table.index, name);
    if (position == nullptr) {
        if (PyErr_Occurred() == nullptr) PyErr_Format(PyExc_TypeError, "%S: no argument of this operation", name);
        return false;
    }
    if (value == Py_None) return true;
    const long index = PyLong_AsLong(position);
    switch (index) {
    case kDevice: call->device_name = value; return true;
    case kAllocate: call->allocate = value; return true;
    case kStream: call->stream = value; return true;
    default: return read_field(table.fields[index], value, purpose, call);
    }
}

bool read_call(const Arguments& arguments, Purpose purpose, Call* call) {
    if (arguments.num_positional != 1) {
        PyErr_SetString(PyExc_TypeError, "op: the operation is the only positional argument");
        return false;
    }
    const long op = PyLong_AsLong(arguments.values[0]);
    if (op == -1 && PyErr_Occurred() != nullptr) return false;
    if (op < TILEWISE_FORWARD || op > TILEWISE_COMBINE) {
        PyErr_Format(PyExc_ValueError, "op: %ld is no operation; 0 to %d is allowed", op, int{TILEWISE_COMBINE});
        return false;
    }
    call->op = static_cast<tilewise_op>(op);
    call->attention.mask.window_left = call->attention.mask.window_right = -1;
    const Py_ssize_t count = arguments.names != nullptr ? PyTuple_Size(arguments.names) : 0;
    for (Py_ssize_t i = 0; i < count; ++i) {
        if (!read_argument(PyTuple_GetItem(arguments.names, i), arguments.values[1 + i], purpose, call)) return false;
    }
    tilewise_mask& mask = call->attention.mask;
    if ((mask.flags & TILEWISE_MASK_WINDOW) == 0) mask.window_left = mask.window_right = 0;
    return true;
}

void append_key(const Call& call, std::vector<std::int64_t>* key) {
    key->push_back(call.op);
    append_tensors(call, key);
    const tilewise_options& options = call.options();
    const auto pair = [](std::int64_t high, std::uint32_t low) { return high << 32 | low; };
    key->push_back(pair(options.flags, static_cast<std::uint32_t>(options.num_splits)));
    key->push_back(options.num_threads);
    key->push_back(static_cast<std::int64_t>(call.kernel.size()));
    key->insert(key->end(), call.kernel.begin(), call.kernel.end());
    if (call.op == TILEWISE_COMBINE) return;
    const tilewise_attention& a = call.attention;
    const tilewise_mask& mask = a.mask;
    key->insert(key->end(), {a.lengths.max_seqlen_q, a.lengths.max_seqlen_k, mask.window_left, mask.window_right,
                             mask.prefix, mask.block, pair(mask.flags, static_cast<std::uint32_t>(mask.chunk))});
    key->push_back(pair(a.score.flags, std::bit_cast<std::uint32_t>(a.score.softmax_scale)));
    key->push_back(pair(a.cache.rotary_interleaved, std::bit_cast<std::uint32_t>(a.score.softcap)));
    // Without dropout a seed is an error, and the plan says so.
    const bool has_seed = a.score.dropout_p == 0.0f && (a.score.dropout_seed | a.score.dropout_offset) != 0;
    key->push_back(pair(has_seed, std::bit_cast<std::uint32_t>(a.score.dropout_p)));
}

PyObject* field_names() { return PyDict_Keys(attention_table.index); }

}  // namespace tilewise::python
