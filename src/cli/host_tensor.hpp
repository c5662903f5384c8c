// A tensor in this process's memory: element type, shape, strides and the bytes themselves. Files are read into it, calls take
// views of it. The memory is aligned to 64 bytes, so a contiguous tensor always meets the library's fast path.
// Sizes that come from a file or a flag are multiplied with overflow checks, here and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tilewise/tilewise.hpp"

namespace tilewise::cli {

constexpr size_t kTensorAlignment = 64;

const char* name_of(DType dtype);
// The type with this name ("f32", "bf16", ...); kNone for any other text.
DType dtype_named(const std::string& name);

// Elements times element size; throws Failure "<what>: ..." where it leaves 63 bits or an axis is negative.
int64_t byte_count(const std::string& what, DType dtype, std::span<const int64_t> shape);
// "(2, 128, 8, 64)"
std::string shape_text(std::span<const int64_t> shape);

// Strides in elements of a tensor without gaps whose axes lie in memory in this order, from the outermost to the innermost.
std::vector<int64_t> strides_in_order(std::span<const int64_t> shape, std::span<const int> order);

struct FreeAligned {
    void operator()(std::byte* memory) const { std::free(memory); }
};

class HostTensor {
public:
    HostTensor() = default;
    // Contiguous and not initialised; `name` leads the message of a Failure.
    HostTensor(const std::string& name, DType dtype, std::vector<int64_t> shape);
    // The same, with the axes stored in another order: `order` lists the axes from the outermost to the innermost.
    static HostTensor with_order(const std::string& name, DType dtype, std::vector<int64_t> shape,
                                 std::span<const int> order);

    HostTensor clone(const std::string& name) const;

    DType dtype() const { return dtype_; }
    const std::vector<int64_t>& shape() const { return shape_; }
    const std::vector<int64_t>& stride() const { return stride_; }
    bool is_contiguous() const;
    std::span<std::byte> bytes() { return {memory_.get(), static_cast<size_t>(num_bytes_)}; }
    std::span<const std::byte> bytes() const { return {memory_.get(), static_cast<size_t>(num_bytes_)}; }
    template <class T> std::span<T> as() {
        return {reinterpret_cast<T*>(memory_.get()), static_cast<size_t>(num_bytes_) / sizeof(T)};
    }
    // The memory as the library takes it; more than TILEWISE_MAX_RANK axes are refused with `name`.
    Tensor view(const std::string& name) const;

private:
    DType dtype_ = DType::kNone;
    std::vector<int64_t> shape_;
    std::vector<int64_t> stride_;  // in elements
    std::unique_ptr<std::byte, FreeAligned> memory_;
    int64_t num_bytes_ = 0;
};

}  // namespace tilewise::cli
