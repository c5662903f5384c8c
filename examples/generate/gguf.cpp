// Typed access to a parsed GGUF file: decodes a value when it is asked for and refuses a key of another type.
#include <cstdio>

#include "gguf_cursor.hpp"

namespace tilewise::generate {

namespace {

std::string wrong_type(std::string_view key, const Value& value, const char* wanted) {
    return printable(key) + ": holds " + (value.is_array ? "an array of type " : "a value of type ") +
           type_number(value.type) + "; " + wanted + " is needed";
}

// One element of integer type; false if `type` is no integer type or the value leaves int64.
bool decode_integer(ValueType type, const std::byte* at, std::int64_t& out) {
    switch (type) {
    case ValueType::kUint8: out = load<std::uint8_t>(at); return true;
    case ValueType::kInt8: out = (load<std::uint8_t>(at) ^ 0x80) - 0x80; return true;
    case ValueType::kUint16: out = load<std::uint16_t>(at); return true;
    case ValueType::kInt16: out = load<std::int16_t>(at); return true;
    case ValueType::kUint32: out = load<std::uint32_t>(at); return true;
    case ValueType::kInt32: out = load<std::int32_t>(at); return true;
    case ValueType::kUint64:
    case ValueType::kInt64: out = load<std::int64_t>(at); return type == ValueType::kInt64 || out >= 0;
    default: return false;
    }
}

}  // namespace

std::string printable(std::string_view text) {
    constexpr std::size_t kLongest = 64;
    std::string out;
    for (const char c : text.substr(0, kLongest)) {
        if (c >= 0x20 && c < 0x7f) {
            out += c;
        } else {
            char hex[8];
            std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
            out += hex;
        }
    }
    return text.size() > kLongest ? out + "..." : out;
}

const Value& Gguf::value(std::string_view key) const {
    const auto found = values_.find(key);
    if (found == values_.end()) {
        throw GgufError(printable(key) + ": is missing from the file's metadata");
    }
    return found->second;
}

std::string_view Gguf::string(std::string_view key) const {
    const Value& found = value(key);
    if (found.is_array || found.type != ValueType::kString) {
        throw GgufError(wrong_type(key, found, "a string"));
    }
    return {reinterpret_cast<const char*>(found.bytes.data()), found.bytes.size()};
}

std::int64_t Gguf::integer(std::string_view key) const {
    const Value& found = value(key);
    std::int64_t out = 0;
    if (found.is_array || !decode_integer(found.type, found.bytes.data(), out)) {
        throw GgufError(wrong_type(key, found, "an integer below 2^63"));
    }
    return out;
}

double Gguf::number(std::string_view key) const {
    const Value& found = value(key);
    if (found.is_array || (found.type != ValueType::kFloat32 && found.type != ValueType::kFloat64)) {
        throw GgufError(wrong_type(key, found, "a floating-point number"));
    }
    const std::byte* at = found.bytes.data();
    return found.type == ValueType::kFloat32 ? static_cast<double>(load<float>(at)) : load<double>(at);
}

bool Gguf::boolean(std::string_view key) const {
    const Value& found = value(key);
    if (found.is_array || found.type != ValueType::kBool) {
        throw GgufError(wrong_type(key, found, "a boolean"));
    }
    return found.bytes[0] != std::byte{0};
}

std::vector<std::string_view> Gguf::strings(std::string_view key) const {
    const Value& found = value(key);
    if (!found.is_array || found.type != ValueType::kString) {
        throw GgufError(wrong_type(key, found, "an array of strings"));
    }
    std::vector<std::string_view> out;
    Cursor cursor(found.bytes);
    for (std::uint64_t i = 0; i < found.count; ++i) {
        out.push_back(cursor.string(key));
    }
    return out;
}

std::vector<std::int64_t> Gguf::integers(std::string_view key) const {
    const Value& found = value(key);
    std::vector<std::int64_t> out;
    const std::uint64_t size = value_bytes(found.type);
    for (std::uint64_t i = 0; found.is_array && size != 0 && i < found.count; ++i) {
        std::int64_t element = 0;
        if (!decode_integer(found.type, found.bytes.data() + i * size, element)) {
            break;
        }
        out.push_back(element);
    }
    if (!found.is_array || size == 0 || out.size() != found.count) {
        throw GgufError(wrong_type(key, found, "an array of integers"));
    }
    return out;
}

std::int64_t Gguf::integer_or(std::string_view key, std::int64_t fallback) const {
    return has(key) ? integer(key) : fallback;
}

bool Gguf::boolean_or(std::string_view key, bool fallback) const { return has(key) ? boolean(key) : fallback; }

const Tensor* Gguf::find_tensor(std::string_view name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
}

const Tensor& Gguf::tensor(std::string_view name) const {
    const Tensor* found = find_tensor(name);
    if (found == nullptr) {
        throw GgufError(printable(name) + ": is missing from the file's tensors");
    }
    return *found;
}

}  // namespace tilewise::generate
