// One tensor of an instance in memory: laid out with the strides that its layout asks for, guard bytes around and between, outputs filled
// with a mark that no arithmetic makes. After the call it fetches what was written, and finds every byte that changed and must not.
#pragma once

#include <string>
#include <vector>

#include "conformance/buffer.hpp"
#include "conformance/instance.hpp"

namespace tilewise::conformance {

class Storage {
public:
    // In memory of the device, in element type `dtype`, which may be wider than the tensor's own.
    Storage(const Device& device, const TensorData& tensor, DType dtype);

    // As a library call takes it.
    Tensor view();
    // Fetches the memory after the calls, for the questions below.
    void fetch() { buffer_.fetch(); }
    // Values in row-major order of the shape.
    std::vector<double> values() const;
    // For an element that was never written: true.
    bool is_unwritten(int64_t index) const;
    // Empty, or what changed outside of the elements that the call may write.
    std::string find_damage() const;

private:
    size_t place_of(int64_t index) const;  // byte of an element

    const TensorData* tensor_;
    DType dtype_;
    std::vector<int64_t> strides_;
    size_t first_ = 0;  // byte of element 0
    Buffer buffer_;
    std::vector<unsigned char> before_;
};

}  // namespace tilewise::conformance
