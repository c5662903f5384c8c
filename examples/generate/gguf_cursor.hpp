// A bounds-checked walk over a GGUF file's bytes, and the sizes of its value types. Private to the reader's two sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "gguf.hpp"

namespace tilewise::generate {

template <typename T> T load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// Bytes of one fixed-size value; 0 for strings, arrays and unknown types.
inline std::uint64_t value_bytes(ValueType type) {
    switch (type) {
    case ValueType::kUint8:
    case ValueType::kInt8:
    case ValueType::kBool: return 1;
    case ValueType::kUint16:
    case ValueType::kInt16: return 2;
    case ValueType::kUint32:
    case ValueType::kInt32:
    case ValueType::kFloat32: return 4;
    case ValueType::kUint64:
    case ValueType::kInt64:
    case ValueType::kFloat64: return 8;
    default: return 0;
    }
}

inline std::string type_number(ValueType type) { return std::to_string(static_cast<std::uint32_t>(type)); }

class Cursor {
public:
    explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

    std::uint64_t position() const { return position_; }
    std::uint64_t left() const { return bytes_.size() - position_; }

    std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
        if (count > left()) {
            throw GgufError(printable(what) + ": needs " + std::to_string(count) + " bytes at offset " +
                            std::to_string(position_) + ", but the file ends after " + std::to_string(left()) +
                            " more; it is truncated or damaged");
        }
        const auto part = bytes_.subspan(position_, count);
        position_ += count;
        return part;
    }

    template <typename T> T read(std::string_view what) { return load<T>(take(sizeof(T), what).data()); }

    std::string_view string(std::string_view what) {
        const auto part = take(read<std::uint64_t>(what), what);
        return {reinterpret_cast<const char*>(part.data()), part.size()};
    }

private:
    std::span<const std::byte> bytes_;
    std::uint64_t position_ = 0;
};

}  // namespace tilewise::generate
