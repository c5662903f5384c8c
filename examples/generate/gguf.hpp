// Reads a GGUF file (versions 2 and 3, little-endian): metadata and tensor descriptions, as views into the file's bytes.
//
//   bytes of a file (borrowed, must outlive the reader) -> typed metadata by key, tensors by name
//
// Every length, count and offset of the file is checked against the bytes that are there before it is used, so a
// truncated or corrupted file ends in a GgufError that names the key or tensor and the value, never in a bad read.
// Values stay encoded until they are asked for: a vocabulary of 49,152 strings costs nothing to a caller who skips it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tensor_type.hpp"

namespace tilewise::generate {

struct GgufError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The numbers are the file format's.
enum class ValueType : std::uint32_t {
    kUint8 = 0,
    kInt8 = 1,
    kUint16 = 2,
    kInt16 = 3,
    kUint32 = 4,
    kInt32 = 5,
    kFloat32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9,
    kUint64 = 10,
    kInt64 = 11,
    kFloat64 = 12,
};

// One metadata value, still encoded. A string's `bytes` are its characters; an array of strings keeps the length prefixes.
struct Value {
    ValueType type = ValueType::kUint8;  // of the elements, if it is an array
    bool is_array = false;
    std::uint64_t count = 1;
    std::span<const std::byte> bytes;
};

// dims[0] is the contiguous one, as in the file: a weight (rows, cols) has dims {cols, rows}.
struct Tensor {
    std::string name;
    TensorType type = TensorType::kF32;
    std::vector<std::int64_t> dims;
    std::span<const std::byte> bytes;
};

class Gguf {
public:
    explicit Gguf(std::span<const std::byte> file);

    bool has(std::string_view key) const { return values_.find(key) != values_.end(); }

    // Each throws GgufError if the key is missing or holds another type; integers take any width that fits the result.
    std::string_view string(std::string_view key) const;
    std::int64_t integer(std::string_view key) const;
    double number(std::string_view key) const;
    bool boolean(std::string_view key) const;
    std::vector<std::string_view> strings(std::string_view key) const;
    std::vector<std::int64_t> integers(std::string_view key) const;

    std::int64_t integer_or(std::string_view key, std::int64_t fallback) const;
    bool boolean_or(std::string_view key, bool fallback) const;

    const Tensor* find_tensor(std::string_view name) const;
    const Tensor& tensor(std::string_view name) const;
    const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }

private:
    const Value& value(std::string_view key) const;

    std::map<std::string, Value, std::less<>> values_;
    std::map<std::string, Tensor, std::less<>> tensors_;
};

// A name from a file as it may appear in a message: unprintable bytes escaped, cut at 64 characters.
std::string printable(std::string_view text);

}  // namespace tilewise::generate
