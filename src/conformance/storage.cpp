// Strides of each layout, guards and marks; see storage.hpp.
#include "conformance/storage.hpp"

#include <algorithm>
#include <numeric>

#include "conformance/element.hpp"

namespace tilewise::conformance {

namespace {

constexpr size_t kGuardBytes = 2 * Buffer::kAlignment;
constexpr unsigned char kGuard = 0xa5;
// The stride of an axis of size 1 means nothing; this one would lead far outside.
constexpr int64_t kMeaninglessStride = 1ll << 40;

struct Placement {
    std::vector<size_t> order;  // axes from the outermost to the innermost in memory
    int64_t inner_stride = 1;
    int64_t row_gap = 0;  // elements between the blocks of the second axis from the inside
    int64_t offset = 0;   // elements before the first one
};

bool is_pair(const TensorData& tensor) { return tensor.shape.size() == 4 && tensor.writable.empty(); }

Placement placement_of(const TensorData& tensor) {
    Placement placement;
    const size_t rank = tensor.shape.size();
    placement.order.resize(rank);
    std::iota(placement.order.begin(), placement.order.end(), size_t{0});
    const bool words = is_floating(tensor.dtype);
    switch (tensor.layout) {
    case Layout::kHeadsFirst:
        if (words && rank >= 3) std::swap(placement.order[rank - 3], placement.order[rank - 2]);
        break;
    case Layout::kDimFirst:
        if (words && rank >= 3)
            std::rotate(placement.order.end() - 3, placement.order.end() - 2, placement.order.end());
        if (tensor.dtype == DType::kBool && is_pair(tensor)) std::swap(placement.order[2], placement.order[3]);
        break;
    case Layout::kPaddedRows:
        placement.row_gap = 5;
        if (tensor.dtype == DType::kI32) placement.inner_stride = 2;
        break;
    case Layout::kStridedDim:
        if (tensor.dtype != DType::kBits) placement.inner_stride = 2;
        break;
    case Layout::kUnaligned:
        placement.offset = 1;
        placement.row_gap = 1;
        break;
    default: break;
    }
    return placement;
}

struct Strides {
    std::vector<int64_t> of_axes;
    int64_t elements = 0;  // from the first to the last, gaps included
};

Strides strides_of(const TensorData& tensor, const Placement& placement) {
    const size_t rank = tensor.shape.size();
    Strides strides{std::vector<int64_t>(rank, 0), 0};
    int64_t running = placement.inner_stride, last = 0;
    for (size_t i = rank; i-- > 0;) {
        const size_t axis = placement.order[i];
        if ((tensor.shared_axes >> axis & 1) != 0) continue;
        strides.of_axes[axis] = running;
        last += std::max<int64_t>(tensor.shape[axis] - 1, 0) * running;
        running *= std::max<int64_t>(tensor.shape[axis], 1);
        if (i + 2 == rank) running += placement.row_gap;
    }
    strides.elements = tensor.num_elements() > 0 ? last + 1 : 0;
    return strides;
}

size_t buffer_bytes(const TensorData& tensor, DType dtype) {
    const Placement placement = placement_of(tensor);
    const int64_t elements = placement.offset + strides_of(tensor, placement).elements;
    return 2 * kGuardBytes + static_cast<size_t>(elements * size_of(dtype));
}

}  // namespace

Storage::Storage(const Device& device, const TensorData& tensor, DType dtype)
    : tensor_(&tensor), dtype_(dtype), buffer_(device, buffer_bytes(tensor, dtype), kGuard) {
    const Placement placement = placement_of(tensor);
    strides_ = strides_of(tensor, placement).of_axes;
    first_ = kGuardBytes + static_cast<size_t>(placement.offset * size_of(dtype));
    for (int64_t index = 0; index < tensor.num_elements(); ++index) {
        void* at = buffer_.bytes().data() + place_of(index);
        if (tensor.access == Access::kOut)
            store_unwritten_mark(dtype, at);
        else
            store(dtype, at, tensor.values[static_cast<size_t>(index)]);
    }
    before_ = buffer_.bytes();
    buffer_.send();
}

size_t Storage::place_of(int64_t index) const {
    int64_t offset = 0;
    for (size_t axis = tensor_->shape.size(); axis-- > 0;) {
        offset += index % tensor_->shape[axis] * strides_[axis];
        index /= tensor_->shape[axis];
    }
    return first_ + static_cast<size_t>(offset) * static_cast<size_t>(size_of(dtype_));
}

Tensor Storage::view() {
    std::vector<int64_t> strides = strides_;
    for (size_t axis = 0; axis < strides.size(); ++axis)
        if (tensor_->shape[axis] == 1 && tensor_->layout != Layout::kContiguous) strides[axis] = kMeaninglessStride;
    return Tensor(static_cast<const void*>(buffer_.address() + first_), dtype_,
                  Shape(std::span<const int64_t>(tensor_->shape)), Shape(std::span<const int64_t>(strides)));
}

std::vector<double> Storage::values() const {
    std::vector<double> result(static_cast<size_t>(tensor_->num_elements()));
    for (int64_t index = 0; index < tensor_->num_elements(); ++index)
        result[static_cast<size_t>(index)] = load(dtype_, buffer_.bytes().data() + place_of(index));
    return result;
}

bool Storage::is_unwritten(int64_t index) const {
    return is_unwritten_mark(dtype_, buffer_.bytes().data() + place_of(index));
}

std::string Storage::find_damage() const {
    const std::vector<unsigned char>& after = buffer_.bytes();
    if (after == before_) return {};
    std::vector<uint8_t> writable(after.size(), 0);
    const auto element = static_cast<size_t>(size_of(dtype_));
    for (int64_t index = 0; index < tensor_->num_elements(); ++index) {
        const bool written = tensor_->access == Access::kOut ||
                             (tensor_->access == Access::kInOut && tensor_->writable[static_cast<size_t>(index)] != 0);
        if (written) std::fill_n(writable.begin() + static_cast<std::ptrdiff_t>(place_of(index)), element, uint8_t{1});
    }
    for (size_t byte = 0; byte < after.size(); ++byte) {
        if (writable[byte] != 0 || after[byte] == before_[byte]) continue;
        return "byte " + std::to_string(static_cast<int64_t>(byte) - static_cast<int64_t>(first_)) +
               " from the tensor's address changed, and it belongs to no element that the call writes";
    }
    return {};
}

}  // namespace tilewise::conformance
