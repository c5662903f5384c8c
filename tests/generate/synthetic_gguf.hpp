// Writes GGUF files in memory, right ones and wrong ones, so that the reader's tests need no model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gguf.hpp"

namespace tilewise::generate {

using Bytes = std::vector<std::byte>;

class GgufWriter {
public:
    GgufWriter& string(const std::string& key, const std::string& value);
    GgufWriter& u32(const std::string& key, std::uint32_t value);
    GgufWriter& i64(const std::string& key, std::int64_t value);
    GgufWriter& f32(const std::string& key, float value);
    GgufWriter& boolean(const std::string& key, bool value);
    GgufWriter& strings(const std::string& key, const std::vector<std::string>& values);
    GgufWriter& i32s(const std::string& key, const std::vector<std::int32_t>& values);
    GgufWriter& raw_value(const std::string& key, std::uint32_t type, const Bytes& payload);

    // dims[0] is the contiguous one. The data are `bytes`, or pseudo-random ones of the size that dims and type say.
    GgufWriter& tensor(const std::string& name, const std::vector<std::uint64_t>& dims, std::uint32_t type);
    GgufWriter& tensor(const std::string& name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                       Bytes bytes);

    Bytes file(std::uint32_t version = 3) const;

private:
    struct Entry {
        std::string name;
        std::vector<std::uint64_t> dims;
        std::uint32_t type;
        Bytes bytes;
    };

    std::vector<std::pair<std::string, Bytes>> values_;
    std::vector<Entry> tensors_;
};

template <typename T> void append(Bytes& out, const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof value);
}

// A byte-level vocabulary: 256 bytes, the merges that spell " the" and "in", and two control tokens.
void add_vocabulary(GgufWriter& writer);

// A whole model of one layer: width 32, 2 query heads on 1 key-value head, head size 16, tensors of all four types.
GgufWriter small_model();

}  // namespace tilewise::generate
