// See attend.hpp. Functions here that return an int answer 1 for yes, 0 for no, and -1 with an exception set.
#include "attend.hpp"

#include "call.hpp"
#include "names.hpp"
#include "run.hpp"

namespace tilewise::python {

namespace {

// What bind_torch was given; never released.
struct Torch {
    PyObject* types = nullptr;
    PyObject* questions = nullptr;
    PyObject* is_grad_enabled = nullptr;
    PyObject* forward_ad = nullptr;
    PyObject* empty_like = nullptr;
    PyObject* allocate = nullptr;
    PyObject* fields = nullptr;
};
Torch torch;

// Interned once.
struct Names {
    PyObject* inputs[3] = {PyUnicode_InternFromString("q"), PyUnicode_InternFromString("k"),
                           PyUnicode_InternFromString("v")};
    PyObject* o = PyUnicode_InternFromString("o");
    PyObject* requires_grad = PyUnicode_InternFromString("requires_grad");
    PyObject* current_level = PyUnicode_InternFromString("_current_level");
};

const Names& names() {
    static const Names* const all = new Names;
    return *all;
}

int truth_of(const Ref& answer) {
    if (answer.get() == Py_None || answer.get() == Py_False) return 0;
    return answer ? PyObject_IsTrue(answer.get()) : -1;
}

int ask(PyObject* question) { return truth_of(Ref(PyObject_CallNoArgs(question))); }

int must_be_seen() {
    const Py_ssize_t count = PyTuple_Size(torch.questions);
    for (Py_ssize_t i = 0; i < count; ++i) {
        if (const int answer = ask(PyTuple_GetItem(torch.questions, i)); answer != 0) return answer;
    }
    const Ref level(PyObject_GetAttr(torch.forward_ad, names().current_level));
    const long number = level ? PyLong_AsLong(level.get()) : -1;
    return number == -1 && PyErr_Occurred() != nullptr ? -1 : number >= 0;
}

bool is_plain_type(PyObject* type) {
    const Py_ssize_t count = PyTuple_Size(torch.types);
    for (Py_ssize_t i = 0; i < count; ++i) {
        if (PyTuple_GetItem(torch.types, i) == type) return true;
    }
    return false;
}

// Numbers and arrays of other libraries are plain.
int is_plain_value(PyObject* value, int records) {
    PyTypeObject* type = Py_TYPE(value);
    if (!is_plain_type(reinterpret_cast<PyObject*>(type)))
        return PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(PyTuple_GetItem(torch.types, 0))) == 0;
    if (records == 0) return 1;
    const int answer = truth_of(Ref(PyObject_GetAttr(value, names().requires_grad)));
    return answer < 0 ? answer : 1 - answer;
}

// Whether `use`, a function (name of a field, value) -> answer, says yes to every option that is given.
template <class Use> int each_option(PyObject* options, Use&& use) {
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(options, &at, &name, &value) != 0) {
        if (value == Py_None) continue;
        PyObject* field = PyDict_GetItemWithError(torch.fields, name);
        if (field == nullptr) return PyErr_Occurred() != nullptr ? -1 : 0;
        if (const int answer = use(field, value); answer != 1) return answer;
    }
    return 1;
}

int is_plain_call(PyObject* const* values, Py_ssize_t count, PyObject* options) {
    if (const int seen = must_be_seen(); seen != 0) return seen < 0 ? seen : 0;
    const int records = ask(torch.is_grad_enabled);
    int answer = records < 0 ? records : 1;
    for (Py_ssize_t i = 0; i < count && answer == 1; ++i) answer = is_plain_value(values[i], records);
    if (answer != 1 || options == nullptr) return answer;
    return each_option(options, [&](PyObject*, PyObject* value) { return is_plain_value(value, records); });
}

bool read(PyObject* name, PyObject* value, Call* call) { return read_argument(name, value, Purpose::kLaunch, call); }

bool read_inputs(PyObject* const* inputs, PyObject* options, Call* call) {
    for (size_t i = 0; i < 3; ++i) {
        if (!read(names().inputs[i], inputs[i], call)) return false;
    }
    return each_option(options, [&](PyObject* name, PyObject* value) { return read(name, value, call) ? 1 : -1; }) == 1;
}

bool has_output_like_q(const Call& call) {
    const tilewise_tensor &q = call.attention.q, &v = call.attention.v;
    const bool is_readable = (q.rank == 3 || q.rank == 4) && v.rank > 0 && v.rank <= TILEWISE_MAX_RANK;
    return is_readable && q.shape[q.rank - 1] == v.shape[v.rank - 1];
}

bool knows_stream(const Call& call) {
    return call.device.type == dlpack::kCpu || call.api != nullptr || call.stream != nullptr;
}

bool refuse_arguments(const char* message) {
    PyErr_SetString(PyExc_TypeError, message);
    return false;
}

bool check_binding() { return torch.types != nullptr || refuse_arguments("bind_torch() comes first"); }

bool check_arguments(PyObject* const* values, Py_ssize_t count) {
    if (!check_binding()) return false;
    if (count == 4 && PyDict_Check(values[3])) return true;
    return refuse_arguments("attend() takes q, k, v and a dict of options");
}

Ref attend_plainly(PyObject* const* inputs, PyObject* options) {
    Call call;
    if (!read_inputs(inputs, options, &call)) return {};
    if (!has_output_like_q(call) || !knows_stream(call)) return Ref::borrowed(Py_None);
    Ref o(PyObject_CallFunctionObjArgs(torch.empty_like, inputs[0], nullptr));
    call.allocate = torch.allocate;
    return o && read(names().o, o.get(), &call) && launch(call) ? std::move(o) : Ref();
}

}  // namespace

PyObject* bind_torch(PyObject* arguments) {
    Torch given;
    if (PyArg_ParseTuple(arguments, "O!O!OOOOO!", &PyTuple_Type, &given.types, &PyTuple_Type, &given.questions,
                         &given.is_grad_enabled, &given.forward_ad, &given.empty_like, &given.allocate, &PyDict_Type,
                         &given.fields) == 0)
        return nullptr;
    if (PyTuple_Size(given.types) == 0 || !PyType_Check(PyTuple_GetItem(given.types, 0))) {
        refuse_arguments("types: torch.Tensor comes first");
        return nullptr;
    }
    Py_INCREF(arguments);
    torch = given;
    Py_RETURN_NONE;
}

PyObject* is_plain(PyObject* const* values, Py_ssize_t count) {
    const int answer = check_binding() ? is_plain_call(values, count, nullptr) : -1;
    return answer < 0 ? nullptr : PyBool_FromLong(answer);
}

PyObject* attend(PyObject* const* values, Py_ssize_t count) {
    if (!check_arguments(values, count)) return nullptr;
    const int answer = is_plain_call(values, 3, values[3]);
    if (answer < 0) return nullptr;
    if (answer == 0) Py_RETURN_NONE;
    Ref o = attend_plainly(values, values[3]);
    if (!o) rename_arguments(TILEWISE_FORWARD);
    return o.release();
}

}  // namespace tilewise::python
