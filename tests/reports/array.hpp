// Tensors of the report tests: four axes, any element type that attention takes, any strides. An Array is a view; copies, parts and
// permutations of it share its memory. Memory of its own starts as NaN everywhere, gaps between the elements included, so that an element
// that is not written, or a byte that must not be read, shows. Numbers go in and out as double and are rounded here, not by the library.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "place.hpp"

namespace reports {

using tilewise::DType;

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A 16-bit float with this many bits of mantissa and exponent, rounded to nearest even; the sign is the caller's.
inline std::uint16_t encode_half(double magnitude, int mantissa_bits, int exponent_bits) {
    const int infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
    if (std::isnan(magnitude)) return static_cast<std::uint16_t>(infinity | 1 << (mantissa_bits - 1));
    if (std::isinf(magnitude)) return static_cast<std::uint16_t>(infinity);
    const int lowest = 2 - (1 << (exponent_bits - 1));  // exponent of the smallest normal number
    const auto field = static_cast<int>(std::bit_cast<std::uint64_t>(magnitude) >> 52);
    const int exponent = std::max(field - 1023, lowest);
    const double unit = std::bit_cast<double>(static_cast<std::uint64_t>(1023 + mantissa_bits - exponent) << 52);
    const auto units = static_cast<int>(std::lrint(magnitude * unit));
    return static_cast<std::uint16_t>(std::min(((exponent - lowest) << mantissa_bits) + units, infinity));
}
inline double decode_f16(int bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double finite = std::ldexp(mantissa + (exponent == 0 ? 0 : 1024), std::max(exponent, 1) - 25);
    const double magnitude = exponent < 31 ? finite : mantissa == 0 ? kInfinity : kNaN;
    return bits & 0x8000 ? -magnitude : magnitude;
}

inline double load_element(const void* data, DType dtype, std::int64_t offset) {
    switch (dtype) {
    case DType::kF32: return static_cast<double>(static_cast<const float*>(data)[offset]);
    case DType::kF64: return static_cast<const double*>(data)[offset];
    case DType::kF16: return decode_f16(static_cast<const std::uint16_t*>(data)[offset]);
    default: {
        const std::uint32_t bits = static_cast<const std::uint16_t*>(data)[offset];
        return static_cast<double>(std::bit_cast<float>(bits << 16));
    }
    }
}
inline void store_element(void* data, DType dtype, std::int64_t offset, double value) {
    const auto half = [&](int mantissa_bits, int exponent_bits) {
        const int sign = std::signbit(value) ? 0x8000 : 0;
        const int bits = encode_half(std::fabs(value), mantissa_bits, exponent_bits);
        static_cast<std::uint16_t*>(data)[offset] = static_cast<std::uint16_t>(sign | bits);
    };
    switch (dtype) {
    case DType::kF32: static_cast<float*>(data)[offset] = static_cast<float>(value); break;
    case DType::kF64: static_cast<double*>(data)[offset] = value; break;
    case DType::kF16: half(10, 5); break;
    default: half(7, 8);
    }
}

class Array {
public:
    using Axes = std::array<std::int64_t, 4>;

    Array() = default;
    Array(DType dtype, const Axes& shape) : Array(dtype, shape, contiguous(shape)) {}
    Array(DType dtype, const Axes& shape, const Axes& strides) : dtype_(dtype), shape_(shape), strides_(strides) {
        std::int64_t count = 1;
        for (std::size_t axis = 0; axis < 4; ++axis)
            count += (std::max<std::int64_t>(shape[axis], 1) - 1) * strides[axis];
        const auto bytes = static_cast<std::size_t>(count * tilewise::size_of(dtype));
        owner_ = {allocate(bytes), [bytes](void* memory) { release(memory, bytes); }};
        data_ = owner_.get();
        for (std::int64_t i = 0; i < count; ++i) store_element(data_, dtype, i, kNaN);
    }
    // Memory of the caller, left as it is.
    Array(DType dtype, const Axes& shape, const Axes& strides, void* data)
        : dtype_(dtype), shape_(shape), strides_(strides), data_(data) {}

    static Axes contiguous(const Axes& shape) {
        return {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
    }

    bool given() const { return data_ != nullptr; }
    DType dtype() const { return dtype_; }
    std::int64_t size(std::size_t axis) const { return shape_[axis]; }
    const Axes& shape() const { return shape_; }
    const Axes& strides() const { return strides_; }
    std::int64_t count() const { return shape_[0] * shape_[1] * shape_[2] * shape_[3]; }
    std::int64_t offset(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) const {
        return a * strides_[0] + b * strides_[1] + c * strides_[2] + d * strides_[3];
    }
    double operator()(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) const {
        return load_element(data_, dtype_, offset(a, b, c, d));
    }
    void set(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d, double value) const {
        store_element(data_, dtype_, offset(a, b, c, d), value);
    }

    // The last axis of an array of doubles.
    double* doubles(std::int64_t a, std::int64_t b, std::int64_t c) const {
        return static_cast<double*>(data_) + offset(a, b, c, 0);
    }

    template <class Body> void each(Body&& body) const {
        for (std::int64_t a = 0; a < shape_[0]; ++a)
            for (std::int64_t b = 0; b < shape_[1]; ++b)
                for (std::int64_t c = 0; c < shape_[2]; ++c)
                    for (std::int64_t d = 0; d < shape_[3]; ++d) body(a, b, c, d);
    }
    const Array& fill(double value) const {
        each([&](auto... at) { set(at..., value); });
        return *this;
    }
    const Array& assign(const Array& other) const {
        each([&](auto... at) { set(at..., other(at...)); });
        return *this;
    }
    // Normal numbers that depend on the seed and the place. They come out of a pool, so that large tensors are cheap.
    const Array& randomize(unsigned seed, double scale = 1.0) const {
        static const std::vector<double> pool = [] {
            std::vector<double> numbers(65521);
            std::mt19937 generator(12345);
            std::normal_distribution<double> normal;
            for (double& number : numbers) number = normal(generator);
            return numbers;
        }();
        std::size_t next = seed * std::size_t{7919} % pool.size();
        each([&](auto... at) {
            set(at..., scale * pool[next]);
            if (++next == pool.size()) next = 0;
        });
        return *this;
    }

    // Elements begin .. begin + count - 1 of an axis.
    Array part(std::size_t axis, std::int64_t begin, std::int64_t count) const {
        Array result = *this;
        result.data_ = static_cast<std::byte*>(data_) + begin * strides_[axis] * tilewise::size_of(dtype_);
        result.shape_[axis] = count;
        return result;
    }
    Array permuted(const std::array<std::size_t, 4>& order) const {
        Array result = *this;
        for (std::size_t axis = 0; axis < 4; ++axis) {
            result.shape_[axis] = shape_[order[axis]];
            result.strides_[axis] = strides_[order[axis]];
        }
        return result;
    }
    // An axis of size 1 repeated by stride 0.
    Array expanded(std::size_t axis, std::int64_t count) const {
        Array result = *this;
        result.shape_[axis] = count;
        result.strides_[axis] = 0;
        return result;
    }
    Array contiguous_copy() const {
        Array result(dtype_, shape_);
        result.assign(*this);
        return result;
    }

    // The tensor of the axes first .. last - 1: (1, 4) of a packed q, (0, 3) of an lse.
    tilewise::Tensor view(std::size_t first = 0, std::size_t last = 4) const {
        if (!given()) return {};
        const std::span shape(shape_), strides(strides_);
        return {static_cast<const void*>(data_), dtype_, tilewise::Shape(shape.subspan(first, last - first)),
                tilewise::Shape(strides.subspan(first, last - first))};
    }

private:
    DType dtype_ = DType::kNone;
    Axes shape_{}, strides_{};
    std::shared_ptr<void> owner_;
    void* data_ = nullptr;
};

inline Array random(DType dtype, const Array::Axes& shape, unsigned seed, double scale = 1.0) {
    return Array(dtype, shape).randomize(seed, scale);
}

}  // namespace reports
