// Element sizes and names, checked sizes, strides and aligned memory of tensors on the host.
#include "host_tensor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "error.hpp"

namespace tilewise::cli {
namespace {

constexpr std::array<std::pair<DType, const char*>, 8> kNames{{
    {DType::kF32, "f32"},
    {DType::kF16, "f16"},
    {DType::kBF16, "bf16"},
    {DType::kF64, "f64"},
    {DType::kI32, "i32"},
    {DType::kI64, "i64"},
    {DType::kBool, "bool"},
    {DType::kBits, "bits"},
}};

std::vector<int> row_major(size_t rank) {
    std::vector<int> order(rank);
    std::iota(order.begin(), order.end(), 0);
    return order;
}

}  // namespace

const char* name_of(DType dtype) {
    for (const auto& [type, name] : kNames) {
        if (type == dtype) return name;
    }
    return "none";
}

DType dtype_named(const std::string& name) {
    for (const auto& [type, known] : kNames) {
        if (known == name) return type;
    }
    return DType::kNone;
}

int64_t byte_count(const std::string& what, DType dtype, std::span<const int64_t> shape) {
    // The product of the axes that are not 0 has to fit as well: strides are made from it.
    int64_t elements = 1;
    bool empty = false;
    for (const int64_t extent : shape) {
        if (extent < 0) throw Failure(fmt::format("{}: {} has a negative axis", what, shape_text(shape)));
        empty = empty || extent == 0;
        if (__builtin_mul_overflow(elements, std::max<int64_t>(extent, 1), &elements)) {
            throw Failure(fmt::format("{}: {} has more elements than 63 bits count", what, shape_text(shape)));
        }
    }
    int64_t bytes = 0;
    if (__builtin_mul_overflow(elements, size_of(dtype), &bytes)) {
        throw Failure(
            fmt::format("{}: {} of {} has more bytes than 63 bits count", what, shape_text(shape), name_of(dtype)));
    }
    return empty ? 0 : bytes;
}

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

std::vector<int64_t> strides_in_order(std::span<const int64_t> shape, std::span<const int> order) {
    std::vector<int64_t> stride(shape.size());
    int64_t step = 1;
    for (size_t i = order.size(); i-- > 0;) {
        const auto axis = static_cast<size_t>(order[i]);
        stride[axis] = step;
        // An empty axis must not make the strides of its neighbours 0, which would look like a broadcast.
        step *= std::max<int64_t>(shape[axis], 1);
    }
    return stride;
}

HostTensor::HostTensor(const std::string& name, DType dtype, std::vector<int64_t> shape)
    : dtype_(dtype), shape_(std::move(shape)), num_bytes_(byte_count(name, dtype, shape_)) {
    stride_ = strides_in_order(shape_, row_major(shape_.size()));
    const size_t padded = (static_cast<size_t>(num_bytes_) / kTensorAlignment + 1) * kTensorAlignment;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kTensorAlignment, padded)));
    if (!memory_) throw Failure(fmt::format("{}: {} bytes of memory are not available", name, padded));
}

HostTensor HostTensor::with_order(const std::string& name, DType dtype, std::vector<int64_t> shape,
                                  std::span<const int> order) {
    HostTensor tensor(name, dtype, std::move(shape));
    tensor.stride_ = strides_in_order(tensor.shape_, order);
    return tensor;
}

HostTensor HostTensor::clone(const std::string& name) const {
    HostTensor copy(name, dtype_, shape_);
    copy.stride_ = stride_;
    std::memcpy(copy.memory_.get(), memory_.get(), static_cast<size_t>(num_bytes_));
    return copy;
}

bool HostTensor::is_contiguous() const {
    const std::vector<int64_t> dense = strides_in_order(shape_, row_major(shape_.size()));
    for (size_t axis = 0; axis < shape_.size(); ++axis) {
        if (shape_[axis] != 1 && stride_[axis] != dense[axis]) return false;
    }
    return true;
}

Tensor HostTensor::view(const std::string& name) const {
    if (shape_.size() > TILEWISE_MAX_RANK) {
        throw Failure(fmt::format("{}: {} has {} axes; at most {} are allowed", name, shape_text(shape_), shape_.size(),
                                  TILEWISE_MAX_RANK));
    }
    return {static_cast<const void*>(memory_.get()), dtype_, Shape(shape_), Shape(stride_)};
}

}  // namespace tilewise::cli
