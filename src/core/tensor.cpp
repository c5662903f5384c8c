// Tensor descriptions: names of arguments and element types, extents, and the text form "bf16 (2, 128, 8, 64)".
// Extents saturate at the largest int64 instead of wrapping, so that validate can compare them with a limit.
#include "core/tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>

namespace tilewise {

namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

// For a, b >= 0.
int64_t saturating_product(int64_t a, int64_t b) { return a != 0 && b > kLargest / a ? kLargest : a * b; }
int64_t saturating_sum(int64_t a, int64_t b) { return b > kLargest - a ? kLargest : a + b; }

std::span<const int64_t> axes(const std::array<int64_t, kMaxRank>& values, int rank) {
    return {values.data(), static_cast<size_t>(std::clamp(rank, 0, kMaxRank))};
}

bool is_contiguous(const TensorDesc& tensor) {
    if (tensor.num_elements() == 0) return true;
    int64_t expected = 1;
    for (int axis = tensor.rank - 1; axis >= 0; --axis) {
        if (tensor.dim(axis) == 1) continue;
        if (tensor.step(axis) != expected) return false;
        expected = saturating_product(expected, tensor.dim(axis));
    }
    return true;
}

}  // namespace

int64_t TensorDesc::num_elements() const {
    const auto dims = axes(shape, rank);
    if (std::any_of(dims.begin(), dims.end(), [](int64_t n) { return n <= 0; })) return 0;
    int64_t count = 1;
    for (const int64_t n : dims) count = saturating_product(count, n);
    return count;
}

int64_t TensorDesc::last_offset() const {
    if (num_elements() == 0) return 0;
    int64_t offset = 0;
    for (int axis = 0; axis < rank; ++axis) {
        if (dim(axis) == 1) continue;  // the stride of such an axis means nothing
        offset = saturating_sum(offset, saturating_product(dim(axis) - 1, std::max<int64_t>(step(axis), 0)));
    }
    return offset;
}

TensorDesc contiguous(DType dtype, std::initializer_list<int64_t> shape) {
    TensorDesc tensor;
    tensor.dtype = dtype;
    tensor.rank = static_cast<int>(std::min(shape.size(), static_cast<size_t>(kMaxRank)));
    std::copy_n(shape.begin(), tensor.rank, tensor.shape.begin());
    int64_t stride = 1;
    for (int axis = tensor.rank - 1; axis >= 0; --axis) {
        tensor.stride[static_cast<size_t>(axis)] = stride;
        stride = saturating_product(stride, std::max<int64_t>(tensor.dim(axis), 1));
    }
    return tensor;
}

const char* name_of(Arg arg) {
    // clang-format off
    static constexpr std::array<const char*, kNumArgs> kNames = {
        "q", "k", "v", "o", "lse",
        "grad_o", "grad_lse", "grad_q", "grad_k", "grad_v", "grad_bias", "grad_sink",
        "cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k", "leftpad_k",
        "mask", "key_begin", "key_end", "prefix_lens",
        "alibi_slopes", "bias", "sink",
        "cache_seqlens", "cache_batch_idx", "page_table", "k_new", "v_new", "cu_seqlens_k_new",
        "rotary_cos", "rotary_sin", "rotary_seqlens",
        "partial_o", "partial_lse",
        "error_flag",
        "q_rotated", "total_seqlens",
    };
    // clang-format on
    static_assert(kNames.back() != nullptr, "every Arg has a name");
    return static_cast<size_t>(arg) < kNumArgs ? kNames[static_cast<size_t>(arg)] : "?";
}

const char* name_of(DType dtype) {
    switch (dtype) {
    case DType::kNone: return "none";
    case DType::kF32: return "f32";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
    case DType::kF64: return "f64";
    case DType::kI32: return "i32";
    case DType::kI64: return "i64";
    case DType::kBool: return "bool";
    case DType::kBits: return "bits";
    }
    return "?";
}

std::string to_string(const TensorDesc& tensor) {
    if (!tensor.given()) return "none";
    std::string text = fmt::format("{} ({})", name_of(tensor.dtype), fmt::join(axes(tensor.shape, tensor.rank), ", "));
    if (!is_contiguous(tensor)) text += fmt::format(" strides ({})", fmt::join(axes(tensor.stride, tensor.rank), ", "));
    if (tensor.alignment < 16) text += fmt::format(" {}-byte aligned", tensor.alignment);
    return text;
}

}  // namespace tilewise
