// Builds a View and reads single elements; see view.hpp.
#include "cpu/view.hpp"

namespace tilewise::cpu {

View make_view(const Step& step, const Arguments& arguments) {
    return {make_attention_view(step, arguments), {&step, &arguments}};
}

double load_element(const void* data, DType dtype, int64_t offset) {
    switch (dtype) {
    case DType::kF32: return static_cast<double>(static_cast<const float*>(data)[offset]);
    case DType::kF16: return static_cast<double>(to_float(static_cast<const F16*>(data)[offset]));
    case DType::kBF16: return static_cast<double>(to_float(static_cast<const BF16*>(data)[offset]));
    case DType::kF64: return static_cast<const double*>(data)[offset];
    default: return 0.0;  // integers and masks are never read through here
    }
}

void store_element(void* data, DType dtype, int64_t offset, double value) {
    switch (dtype) {
    case DType::kF32: static_cast<float*>(data)[offset] = static_cast<float>(value); break;
    case DType::kF16: static_cast<F16*>(data)[offset] = to_f16(static_cast<float>(value)); break;
    case DType::kBF16: static_cast<BF16*>(data)[offset] = to_bf16(static_cast<float>(value)); break;
    case DType::kF64: static_cast<double*>(data)[offset] = value; break;
    default: break;
    }
}

}  // namespace tilewise::cpu
