// The tensor element types this program reads, and how many bytes their blocks take.
//
// A row is a sequence of blocks; every row starts on a block, so a row length must be a multiple of `block_elements`.
#pragma once

#include <cstdint>

namespace tilewise::generate {

// The numbers are the file format's.
enum class TensorType : std::uint32_t { kF32 = 0, kF16 = 1, kQ41 = 3, kQ80 = 8 };

struct TensorTypeInfo {
    TensorType type;
    const char* name;
    std::int64_t block_elements;
    std::int64_t block_bytes;
};

inline constexpr TensorTypeInfo kTensorTypes[] = {
    {TensorType::kF32, "F32", 1, 4},
    {TensorType::kF16, "F16", 1, 2},
    {TensorType::kQ41, "Q4_1", 32, 20},
    {TensorType::kQ80, "Q8_0", 32, 34},
};

// Null for a type that this program does not read.
constexpr const TensorTypeInfo* find_tensor_type(std::uint32_t id) {
    for (const TensorTypeInfo& info : kTensorTypes) {
        if (static_cast<std::uint32_t>(info.type) == id) {
            return &info;
        }
    }
    return nullptr;
}

constexpr const TensorTypeInfo& tensor_type_info(TensorType type) {
    return *find_tensor_type(static_cast<std::uint32_t>(type));
}

}  // namespace tilewise::generate
