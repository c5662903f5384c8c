// GGUF parsing. Layout: magic, version, tensor count, value count; the values; the tensor descriptions; padding up to
// `general.alignment`; the tensors' bytes, at offsets counted from there.
//
// Counts are never trusted for an allocation: containers grow as entries are really found, so a corrupted count of 2^60
// fails at the end of the file and not in the allocator.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <limits>
#include <utility>

#include "gguf_cursor.hpp"

namespace tilewise::generate {

static_assert(std::endian::native == std::endian::little, "the reader copies little-endian values as they are");

namespace {

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::uint32_t kMaxDims = 4;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMaxAlignment = 1 << 20;

Value read_array(Cursor& cursor, std::string_view key, std::span<const std::byte> file) {
    Value value;
    value.is_array = true;
    value.type = static_cast<ValueType>(cursor.read<std::uint32_t>(key));
    value.count = cursor.read<std::uint64_t>(key);
    const std::uint64_t begin = cursor.position();
    if (value.type == ValueType::kString) {
        for (std::uint64_t i = 0; i < value.count; ++i) {
            cursor.string(key);
        }
        value.bytes = file.subspan(begin, cursor.position() - begin);
        return value;
    }
    const std::uint64_t size = value_bytes(value.type);
    if (size == 0) {
        throw GgufError(printable(key) + ": an array of elements of type " + type_number(value.type) +
                        "; numbers, booleans and strings are allowed");
    }
    if (value.count > cursor.left() / size) {
        throw GgufError(printable(key) + ": " + std::to_string(value.count) + " elements of " + std::to_string(size) +
                        " bytes, but the file ends after " + std::to_string(cursor.left()) +
                        " more; it is truncated or damaged");
    }
    value.bytes = cursor.take(value.count * size, key);
    return value;
}

Value read_value(Cursor& cursor, std::string_view key, std::span<const std::byte> file) {
    const auto type = static_cast<ValueType>(cursor.read<std::uint32_t>(key));
    if (type == ValueType::kArray) {
        return read_array(cursor, key, file);
    }
    Value value;
    value.type = type;
    if (type == ValueType::kString) {
        value.bytes = cursor.take(cursor.read<std::uint64_t>(key), key);
        return value;
    }
    const std::uint64_t size = value_bytes(type);
    if (size == 0) {
        throw GgufError(printable(key) + ": a value of type " + type_number(type) + "; types 0 to 12 are allowed");
    }
    value.bytes = cursor.take(size, key);
    return value;
}

struct TensorEntry {
    Tensor tensor;
    std::uint64_t offset = 0;
    std::uint64_t byte_count = 0;
};

// Elements and bytes of a tensor, refusing products that overflow and rows that do not end on a block.
std::uint64_t tensor_bytes(const Tensor& tensor, std::string_view shown) {
    const TensorTypeInfo& info = tensor_type_info(tensor.type);
    if (tensor.dims.front() % info.block_elements != 0) {
        throw GgufError(std::string(shown) + ": rows of " + std::to_string(tensor.dims.front()) + " elements of type " +
                        info.name + "; a multiple of " + std::to_string(info.block_elements) + " is allowed");
    }
    std::uint64_t blocks = static_cast<std::uint64_t>(tensor.dims.front() / info.block_elements);
    constexpr std::uint64_t kMaxBlocks = std::numeric_limits<std::int64_t>::max() / 64;
    for (std::size_t i = 1; i < tensor.dims.size(); ++i) {
        const auto dim = static_cast<std::uint64_t>(tensor.dims[i]);
        if (blocks > kMaxBlocks / dim) {
            throw GgufError(std::string(shown) + ": dimension " + std::to_string(i) + " is " + std::to_string(dim) +
                            ", which makes the tensor larger than any file");
        }
        blocks *= dim;
    }
    if (blocks > kMaxBlocks) {
        throw GgufError(std::string(shown) + ": dimension 0 is " + std::to_string(tensor.dims.front()) +
                        ", which makes the tensor larger than any file");
    }
    return blocks * static_cast<std::uint64_t>(info.block_bytes);
}

TensorEntry read_tensor(Cursor& cursor, std::uint64_t index) {
    const std::string position = "tensor " + std::to_string(index);
    TensorEntry entry;
    Tensor& tensor = entry.tensor;
    tensor.name = cursor.string(position);
    const std::string shown = printable(tensor.name);
    const auto num_dims = cursor.read<std::uint32_t>(shown);
    if (num_dims < 1 || num_dims > kMaxDims) {
        throw GgufError(shown + ": has " + std::to_string(num_dims) + " dimensions; 1 to 4 are allowed");
    }
    for (std::uint32_t i = 0; i < num_dims; ++i) {
        const auto dim = cursor.read<std::uint64_t>(shown);
        if (dim < 1 || dim > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
            throw GgufError(shown + ": dimension " + std::to_string(i) + " is " + std::to_string(dim) +
                            "; 1 to 2^63 - 1 is allowed");
        }
        tensor.dims.push_back(static_cast<std::int64_t>(dim));
    }
    const auto type = cursor.read<std::uint32_t>(shown);
    if (find_tensor_type(type) == nullptr) {
        throw GgufError(shown + ": tensor type " + std::to_string(type) +
                        "; F32 (0), F16 (1), Q4_1 (3) and Q8_0 (8) are allowed");
    }
    tensor.type = static_cast<TensorType>(type);
    entry.offset = cursor.read<std::uint64_t>(shown);
    entry.byte_count = tensor_bytes(tensor, shown);
    return entry;
}

// Places a described tensor in the file's data section.
void locate(TensorEntry& entry, std::span<const std::byte> data, std::uint64_t alignment) {
    const std::string shown = printable(entry.tensor.name);
    if (entry.offset % alignment != 0) {
        throw GgufError(shown + ": offset " + std::to_string(entry.offset) + "; a multiple of the alignment " +
                        std::to_string(alignment) + " is allowed");
    }
    if (entry.offset > data.size() || entry.byte_count > data.size() - entry.offset) {
        throw GgufError(shown + ": " + std::to_string(entry.byte_count) + " bytes at offset " +
                        std::to_string(entry.offset) + ", but the file holds " + std::to_string(data.size()) +
                        " bytes of tensors; it is truncated or damaged");
    }
    entry.tensor.bytes = data.subspan(entry.offset, entry.byte_count);
}

void check_version(Cursor& cursor) {
    const auto magic = cursor.read<std::uint32_t>("magic");
    if (magic != kMagic) {
        char hex[16];
        std::snprintf(hex, sizeof hex, "0x%08x", magic);
        throw GgufError(std::string("magic: the file starts with ") + hex + "; a GGUF file starts with 0x46554747");
    }
    const auto version = cursor.read<std::uint32_t>("version");
    if (version != 2 && version != 3) {
        throw GgufError("version: " + std::to_string(version) + "; 2 and 3 (little-endian) are allowed");
    }
}

}  // namespace

Gguf::Gguf(std::span<const std::byte> file) {
    Cursor cursor(file);
    check_version(cursor);
    const auto tensor_count = cursor.read<std::uint64_t>("tensor count");
    const auto value_count = cursor.read<std::uint64_t>("value count");
    for (std::uint64_t i = 0; i < value_count; ++i) {
        const std::string_view key = cursor.string("key " + std::to_string(i));
        if (!values_.emplace(key, read_value(cursor, key, file)).second) {
            throw GgufError(printable(key) + ": stands in the file twice; once is allowed");
        }
    }
    std::vector<TensorEntry> entries;
    for (std::uint64_t i = 0; i < tensor_count; ++i) {
        entries.push_back(read_tensor(cursor, i));
    }
    const auto alignment = static_cast<std::uint64_t>(integer_or("general.alignment", kDefaultAlignment));
    if (alignment < 1 || alignment > kMaxAlignment || !std::has_single_bit(alignment)) {
        throw GgufError("general.alignment: " + std::to_string(static_cast<std::int64_t>(alignment)) +
                        "; a power of two up to " + std::to_string(kMaxAlignment) + " is allowed");
    }
    const std::uint64_t data_begin = (cursor.position() + alignment - 1) / alignment * alignment;
    const auto data = file.subspan(std::min<std::uint64_t>(data_begin, file.size()));
    for (TensorEntry& entry : entries) {
        locate(entry, data, alignment);
        const std::string name = entry.tensor.name;
        if (!tensors_.emplace(name, std::move(entry.tensor)).second) {
            throw GgufError(printable(name) + ": stands in the file twice; once is allowed");
        }
    }
}

}  // namespace tilewise::generate
