// See maps_backend.hpp.
#include "cuda/sm90/maps_backend.hpp"

#include <fmt/format.h>

#include <array>

#include "cuda/common/tensor_map.hpp"
#include "cuda/shared/vectors.hpp"

namespace tilewise::cuda::sm90 {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 31;  // coordinates are int32
constexpr int64_t kMostStrideBytes = int64_t{1} << 40;
constexpr int64_t kAnyStrideBytes = 16;  // of an axis of size 1
constexpr int kRank = 4;

bool is_expanded(const TensorDesc& tensor) {
    for (int axis = 0; axis < tensor.rank; ++axis)
        if (tensor.dim(axis) > 1 && tensor.step(axis) <= 0) return true;
    return false;
}
bool is_too_large(const TensorDesc& tensor) {
    for (int axis = 0; axis < tensor.rank; ++axis)
        if (tensor.dim(axis) >= kMostRows || tensor.step(axis) * size_of(tensor.dtype) >= kMostStrideBytes) return true;
    return false;
}

}  // namespace

std::string map_refusal(const char* argument, const TensorDesc& tensor) {
    if (tensor.num_elements() == 0) return fmt::format("{}: has no elements", argument);
    if (!allows_vectors(tensor))
        return fmt::format("{}: base, strides and rows must be multiples of 16 bytes for bulk copies", argument);
    if (is_expanded(tensor)) return fmt::format("{}: an expanded axis (stride 0) cannot be copied in bulk", argument);
    if (is_too_large(tensor))
        return fmt::format("{}: bulk copies take axes below 2^31 and strides below 2^40 bytes", argument);
    return {};
}

Status make_map(const char* argument, const TensorDesc& tensor, const HeadTensor& view, const Box& box,
                CUtensorMap* map) {
    TensorMapEncoder encode = nullptr;
    if (Status status = tensor_map_encoder(&encode); !status.ok()) return status;
    const int row_axis = tensor.rank - 3;
    const int64_t batch = tensor.rank == 4 ? tensor.dim(0) : 1;
    const std::array<cuuint64_t, kRank> sizes = {
        static_cast<cuuint64_t>(tensor.dim(row_axis + 2)), static_cast<cuuint64_t>(tensor.dim(row_axis + 1)),
        static_cast<cuuint64_t>(tensor.dim(row_axis)), static_cast<cuuint64_t>(batch)};
    std::array<cuuint64_t, kRank - 1> strides{};
    const std::array<int64_t, kRank - 1> elements = {view.head_stride, view.row_stride, view.batch_stride};
    for (size_t i = 0; i < strides.size(); ++i)
        strides[i] = static_cast<cuuint64_t>(elements[i] == 0 ? kAnyStrideBytes : elements[i] * size_of(tensor.dtype));
    const std::array<cuuint32_t, kRank> box_sizes = {
        static_cast<cuuint32_t>(box.columns), static_cast<cuuint32_t>(box.heads), static_cast<cuuint32_t>(box.rows), 1};
    const std::array<cuuint32_t, kRank> element_strides = {1, 1, 1, 1};
    const CUtensorMapDataType type =
        tensor.dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    const CUresult result = encode(map, type, kRank, view.data, sizes.data(), strides.data(), box_sizes.data(),
                                   element_strides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_SUCCESS) return {};
    return {StatusCode::kInternal, fmt::format("{}: the driver refused to describe it to the copy engine (code {})",
                                               argument, static_cast<int>(result))};
}

}  // namespace tilewise::cuda::sm90
