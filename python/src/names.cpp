// See names.hpp. Runs only where a call has failed.
#include "names.hpp"

namespace tilewise::python {

namespace {

constexpr unsigned bit(tilewise_op op) { return 1u << op; }
constexpr unsigned kForwards = bit(TILEWISE_FORWARD) | bit(TILEWISE_DECODE);
constexpr unsigned kCaches = bit(TILEWISE_DECODE) | bit(TILEWISE_APPEND);
constexpr unsigned kAll = ~0u;

struct Name {
    std::string_view c;
    std::string_view python;
    unsigned ops;  // whose functions call it so, as bits 1 << tilewise_op
};

constexpr Name kNames[] = {
    {"softmax_scale", "scale", kAll}, {"window_left", "window[0]", kAll}, {"window_right", "window[1]", kAll},
    {"top_left", "diagonal", kAll},   {"prefix_lens", "prefix", kAll},    {"TILEWISE_MASK_CAUSAL", "causal", kAll},
    {"o", "out", kForwards},          {"k", "k_cache", kCaches},          {"v", "v_cache", kCaches},
};

bool is_of_name(char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string_view python_name(std::string_view c, tilewise_op op) {
    for (const Name& name : kNames) {
        if (name.c == c && (name.ops & bit(op)) != 0) return name.python;
    }
    return c;
}

bool is_refusal(PyObject* type) {
    return type == PyExc_ValueError || type == PyExc_TypeError || type == PyExc_NotImplementedError;
}

}  // namespace

std::string with_python_names(std::string_view message, tilewise_op op) {
    std::string text;
    bool is_quoted = false;
    for (size_t at = 0; at < message.size();) {
        size_t end = at;
        while (end < message.size() && is_of_name(message[end])) ++end;
        const std::string_view word = message.substr(at, end - at);
        text += is_quoted ? word : python_name(word, op);
        if (end < message.size()) {
            is_quoted ^= message[end] == '"';
            text += message[end++];
        }
        at = end;
    }
    return text;
}

void rename_arguments(tilewise_op op) {
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    if (is_refusal(type) && value != nullptr) {
        const Ref text(PyObject_Str(value));
        const Ref bytes(text ? PyUnicode_AsUTF8String(text.get()) : nullptr);
        const char* message = bytes ? PyBytes_AsString(bytes.get()) : nullptr;
        if (message == nullptr) PyErr_Clear();
        const std::string renamed = message == nullptr ? "" : with_python_names(message, op);
        if (message != nullptr && renamed != message) {
            const Ref old_type(type), old_value(value), old_trace(trace);
            PyErr_SetString(type, renamed.c_str());
            return;
        }
    }
    PyErr_Restore(type, value, trace);
}

}  // namespace tilewise::python
