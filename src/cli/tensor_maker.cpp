// Allocates and fills, or only describes.
#include "tensor_maker.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "element.hpp"

namespace tilewise::cli {

Tensor TensorMaker::make(const std::string& name, Form form, const Values& values) {
    if (form.order.empty()) {
        form.order.resize(form.shape.size());
        std::iota(form.order.begin(), form.order.end(), 0);
    }
    // Also where no memory is taken: a size that overflows must not reach the strides.
    byte_count(name, form.dtype, form.shape);
    if (contents_ == Contents::kNone) {
        const std::vector<int64_t> stride = strides_in_order(form.shape, form.order);
        return {nullptr, form.dtype, Shape(form.shape), Shape(stride)};
    }
    HostTensor tensor = HostTensor::with_order(name, form.dtype, std::move(form.shape), form.order);
    const int64_t count = static_cast<int64_t>(tensor.bytes().size()) / size_of(tensor.dtype());
    for (int64_t i = 0; i < count; ++i) store_element(tensor.bytes().data(), tensor.dtype(), i, values(i));
    HostTensor& kept = memory_[name] = std::move(tensor);
    return kept.view(name);
}

Tensor TensorMaker::make(const std::string& name, Form form, const std::vector<int64_t>& values) {
    return make(name, std::move(form), [&](int64_t i) { return static_cast<double>(values[static_cast<size_t>(i)]); });
}

Tensor TensorMaker::integers(const std::string& name, const std::vector<int64_t>& values) {
    return make(name, {DType::kI32, {static_cast<int64_t>(values.size())}, {}}, values);
}

TensorMaker::Values TensorMaker::normal() {
    return [this, distribution = std::normal_distribution<float>()](int64_t) mutable {
        return static_cast<double>(distribution(random_));
    };
}

TensorMaker::Values TensorMaker::visible(double probability) {
    return [this, distribution = std::bernoulli_distribution(probability)](int64_t) mutable {
        return distribution(random_) ? 1.0 : 0.0;
    };
}

double TensorMaker::unwritten(int64_t) { return std::numeric_limits<double>::quiet_NaN(); }

std::vector<int64_t> TensorMaker::shuffled(int64_t count) {
    std::vector<int64_t> values(static_cast<size_t>(count));
    std::iota(values.begin(), values.end(), 0);
    std::shuffle(values.begin(), values.end(), random_);
    return values;
}

}  // namespace tilewise::cli
