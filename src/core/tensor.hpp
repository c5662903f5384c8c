// A tensor without its data: element type, shape, strides. Every tensor of a call has a place in the Arg enumeration, so that
// validation, hashing, printing and the pointers at launch are loops over one list and not thirty named fields.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "math/types.hpp"

namespace tilewise {

constexpr int kMaxRank = 5;

struct TensorDesc {
    DType dtype = DType::kNone;  // kNone: the tensor is not given
    int rank = 0;
    std::array<int64_t, kMaxRank> shape{};
    std::array<int64_t, kMaxRank> stride{};  // in elements
    int alignment = 16;  // bytes, of the base address: 16, or the largest smaller power of two that divides it

    bool given() const { return dtype != DType::kNone; }
    int64_t dim(int axis) const { return shape[static_cast<size_t>(axis)]; }
    int64_t step(int axis) const { return stride[static_cast<size_t>(axis)]; }
    int64_t num_elements() const;
    // Element offset of the furthest element; 0 for an empty tensor. Negative strides are refused by validate.
    int64_t last_offset() const;
    bool operator==(const TensorDesc&) const = default;
};

// Strides of a contiguous tensor.
TensorDesc contiguous(DType dtype, std::initializer_list<int64_t> shape);

// Every tensor that a call can have; shapes as in the public header.
enum class Arg : uint8_t {
    kQ,
    kK,
    kV,
    kO,
    kLse,
    kGradO,
    kGradLse,
    kGradQ,
    kGradK,
    kGradV,
    kGradBias,
    kGradSink,
    kCuSeqlensQ,
    kCuSeqlensK,
    kSequsedQ,
    kSequsedK,
    kLeftpadK,
    kMask,
    kKeyBegin,
    kKeyEnd,
    kPrefixLens,
    kAlibiSlopes,
    kBias,
    kSink,
    kCacheSeqlens,
    kCacheBatchIdx,
    kPageTable,
    kKNew,
    kVNew,
    kCuSeqlensKNew,
    kRotaryCos,
    kRotarySin,
    kRotarySeqlens,
    kPartialO,
    kPartialLse,
    kErrorFlag,
    kQRotated,
    kTotalSeqlens,  // of the append step of a decode, in the workspace: never the caller's
    kCount
};
constexpr size_t kNumArgs = static_cast<size_t>(Arg::kCount);

// The caller's name of the argument, as in the public header and in error messages.
const char* name_of(Arg arg);
const char* name_of(DType dtype);
// "bf16 (2, 128, 8, 64)", with strides where they are not contiguous.
std::string to_string(const TensorDesc& tensor);

template <class T> struct PerArg {
    std::array<T, kNumArgs> values{};
    T& operator[](Arg arg) { return values[static_cast<size_t>(arg)]; }
    const T& operator[](Arg arg) const { return values[static_cast<size_t>(arg)]; }
    bool operator==(const PerArg&) const = default;
};

}  // namespace tilewise
