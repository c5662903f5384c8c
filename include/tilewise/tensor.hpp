// Errors, element types and tensors of the C++ view; include tilewise/tilewise.hpp, which includes this.
//
// A Tensor is made from a pointer or a range, a shape, and strides where it is not contiguous; it owns nothing. What can be checked
// without knowing the argument's name is checked here (a range that is too short); everything else is the library's to refuse.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "tilewise/tilewise.h"

namespace tilewise {
inline namespace v0 {

// ---- Errors -------------------------------------------------------------------------------------------------------

enum class Status : std::int32_t {
    kOk = TILEWISE_OK,
    kInvalidArgument = TILEWISE_INVALID_ARGUMENT,
    kUnsupported = TILEWISE_UNSUPPORTED,
    kOutOfMemory = TILEWISE_OUT_OF_MEMORY,
    kDeviceError = TILEWISE_DEVICE_ERROR,
    kInternal = TILEWISE_INTERNAL,
};

// What every function here throws. what() names the argument, its value and what is allowed.
class Error : public std::runtime_error {
public:
    Error(Status status, const std::string& message) : std::runtime_error(message), status_(status) {}
    Status status() const noexcept { return status_; }

private:
    Status status_;
};

namespace detail {
inline void check(tilewise_status status) {
    if (status != TILEWISE_OK) throw Error(static_cast<Status>(status), tilewise_last_error());
}
[[noreturn]] inline void refuse(const std::string& message) { throw Error(Status::kInvalidArgument, message); }
}  // namespace detail

// ---- Tensors ------------------------------------------------------------------------------------------------------

enum class DType : std::int32_t {
    kNone = TILEWISE_NONE,
    kF32 = TILEWISE_F32,
    kF16 = TILEWISE_F16,
    kBF16 = TILEWISE_BF16,
    kF64 = TILEWISE_F64,
    kI32 = TILEWISE_I32,
    kI64 = TILEWISE_I64,
    kBool = TILEWISE_BOOL,
    kBits = TILEWISE_BITS,
};

// Bytes of an element; 1 for kBits, whose last axis counts bytes.
constexpr std::int64_t size_of(DType dtype) noexcept {
    switch (dtype) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kBool:
    case DType::kBits: return 1;
    case DType::kNone: break;
    }
    return 0;
}

// The bits of a 16-bit float, for callers who have no type of their own: std::vector<tilewise::BF16>.
struct BF16 {
    std::uint16_t bits = 0;
};
struct F16 {
    std::uint16_t bits = 0;
};

// The element type that a C++ type stands for. For a 16-bit float of your own:
//   template <> inline constexpr tilewise::DType tilewise::kElementType<my::bfloat16> = tilewise::DType::kBF16;
template <class T> inline constexpr DType kElementType = DType::kNone;
template <> inline constexpr DType kElementType<float> = DType::kF32;
template <> inline constexpr DType kElementType<double> = DType::kF64;
template <> inline constexpr DType kElementType<F16> = DType::kF16;
template <> inline constexpr DType kElementType<BF16> = DType::kBF16;
template <> inline constexpr DType kElementType<std::int32_t> = DType::kI32;
template <> inline constexpr DType kElementType<std::int64_t> = DType::kI64;
template <> inline constexpr DType kElementType<bool> = DType::kBool;

template <class T>
concept Element = (kElementType<std::remove_cv_t<T>> != DType::kNone);

// Memory that outlives the call: an lvalue vector or array, or a span.
template <class Range>
concept ElementRange =
    std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> && std::ranges::borrowed_range<Range>;

// Up to TILEWISE_MAX_RANK sizes or strides, in elements: {2, 128, 8, 64}. Any integer types.
class Shape {
public:
    template <std::integral... Sizes>
    requires(sizeof...(Sizes) <= TILEWISE_MAX_RANK) constexpr Shape(Sizes... sizes) noexcept
        : sizes_{static_cast<std::int64_t>(sizes)...}, rank_(static_cast<std::int32_t>(sizeof...(Sizes))) {}
    explicit Shape(std::span<const std::int64_t> sizes) : rank_(static_cast<std::int32_t>(sizes.size())) {
        if (sizes.size() > TILEWISE_MAX_RANK)
            detail::refuse("shape: " + std::to_string(sizes.size()) + " axes; at most " +
                           std::to_string(TILEWISE_MAX_RANK) + " are allowed");
        std::ranges::copy(sizes, sizes_.begin());
    }
    constexpr std::int32_t rank() const noexcept { return rank_; }
    constexpr std::int64_t operator[](std::int32_t axis) const noexcept {
        return sizes_[static_cast<std::size_t>(axis)];
    }

private:
    std::array<std::int64_t, TILEWISE_MAX_RANK> sizes_{};
    std::int32_t rank_ = 0;
};

// A view of memory that the caller owns; a default-constructed one is "not given". Made from a pointer or a range, a shape, and
// strides in elements where the tensor is not contiguous. Ranges are checked to hold every element (Error otherwise).
// Inputs may be const; what a call writes (o, lse, gradients, a cache that is appended to) must be writable memory.
class Tensor {
public:
    Tensor() = default;
    template <Element T>
    Tensor(T* data, const Shape& shape, const Shape& strides = {})
        : Tensor(static_cast<const void*>(data), kElementType<std::remove_cv_t<T>>, shape, strides) {}
    // Any memory with an explicit element type: raw bytes, std::uint16_t holding bf16, bit masks.
    Tensor(const void* data, DType dtype, const Shape& shape, const Shape& strides = {});
    template <ElementRange Range>
    requires Element<std::ranges::range_value_t<Range>> Tensor(Range&& range, const Shape& shape,
                                                               const Shape& strides = {})
        : Tensor(std::ranges::data(range), shape, strides) {
        check_fits(static_cast<std::size_t>(std::ranges::size(range)));
    }
    template <ElementRange Range>
    Tensor(Range&& range, DType dtype, const Shape& shape, const Shape& strides = {})
        : Tensor(static_cast<const void*>(std::ranges::data(range)), dtype, shape, strides) {
        const auto bytes = std::ranges::size(range) * sizeof(std::ranges::range_value_t<Range>);
        const auto element_bytes = static_cast<std::size_t>(size_of(dtype));
        check_fits(element_bytes == 0 ? 0 : bytes / element_bytes);
    }
    // One axis that holds the whole range: cu_seqlens, alibi_slopes ...
    template <ElementRange Range>
    requires Element<std::ranges::range_value_t<Range>> Tensor(Range&& range)
        : Tensor(std::ranges::data(range), Shape(std::ranges::size(range))) {}

    bool given() const noexcept { return view_.dtype != TILEWISE_NONE; }
    void* data() const noexcept { return view_.data; }
    DType dtype() const noexcept { return static_cast<DType>(view_.dtype); }
    std::int32_t rank() const noexcept { return view_.rank; }
    std::int64_t size(std::int32_t axis) const noexcept { return view_.shape[axis]; }
    std::int64_t stride(std::int32_t axis) const noexcept { return view_.stride[axis]; }
    const tilewise_tensor& c() const noexcept { return view_; }

private:
    void check_fits(std::size_t count) const;

    tilewise_tensor view_{};
};

inline Tensor::Tensor(const void* data, DType dtype, const Shape& shape, const Shape& strides) {
    if (strides.rank() != 0 && strides.rank() != shape.rank())
        detail::refuse("strides: " + std::to_string(strides.rank()) + " for a tensor of " +
                       std::to_string(shape.rank()) + " axes; one an axis, or none for a contiguous tensor");
    view_.data = const_cast<void*>(data);
    view_.dtype = static_cast<std::int32_t>(dtype);
    view_.rank = shape.rank();
    std::uint64_t contiguous = 1;  // unsigned: a nonsense shape must reach the library's own refusal
    for (std::int32_t axis = shape.rank() - 1; axis >= 0; --axis) {
        view_.shape[axis] = shape[axis];
        view_.stride[axis] = strides.rank() != 0 ? strides[axis] : static_cast<std::int64_t>(contiguous);
        contiguous *= static_cast<std::uint64_t>(shape[axis]);
    }
}

inline void Tensor::check_fits(std::size_t count) const {
    bool is_empty = false;
    for (std::int32_t axis = 0; axis < rank(); ++axis) {
        if (size(axis) < 0 || stride(axis) < 0) return;  // refused by the library, which knows the argument's name
        is_empty = is_empty || size(axis) == 0;
    }
    if (is_empty) return;
    std::uint64_t room = count;  // elements from the current one to the end
    for (std::int32_t axis = 0; axis < rank() && room > 0; ++axis) {
        const auto steps = static_cast<std::uint64_t>(size(axis) - 1), step = static_cast<std::uint64_t>(stride(axis));
        if (steps == 0 || step == 0) continue;
        room = steps > (room - 1) / step ? 0 : room - steps * step;
    }
    if (room > 0) return;
    std::string text;
    for (std::int32_t axis = 0; axis < rank(); ++axis) text += (axis == 0 ? "(" : ", ") + std::to_string(size(axis));
    detail::refuse("tensor: shape " + text + ") with its strides reaches past the " + std::to_string(count) +
                   " elements of the range");
}

}  // namespace v0
}  // namespace tilewise
