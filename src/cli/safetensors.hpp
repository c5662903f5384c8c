// The .safetensors format: named tensors behind a JSON header.
//
// SafetensorsFile: bytes -> the list of entries (header only); read() takes one of them. F32, F16, BF16, F64, I32, I64 and BOOL
// can be read; a file may hold tensors of other types as long as nobody asks for them. Every entry's range is checked against
// its shape and against the file before the first data byte is read.
// safetensors_header: entries -> header, padded so that the data begin at a multiple of 64 bytes.
#pragma once

#include <vector>

#include "byte_source.hpp"
#include "host_tensor.hpp"

namespace tilewise::cli {

struct SafetensorsEntry {
    std::string name;
    std::string type;  // as the file spells it
    std::vector<int64_t> shape;
    int64_t begin = 0;  // bytes, from the first data byte
    int64_t end = 0;
};

class SafetensorsFile {
public:
    explicit SafetensorsFile(const ByteSource& source);
    const std::vector<SafetensorsEntry>& entries() const { return entries_; }
    // Throws Failure where the file has no tensor of that name, and lists those that it has.
    HostTensor read(const std::string& name) const;

private:
    const ByteSource& source_;
    int64_t data_start_ = 0;
    std::vector<SafetensorsEntry> entries_;
};

struct TensorToWrite {
    std::string name;
    DType dtype = DType::kNone;
    std::vector<int64_t> shape;
};
// Length and JSON header for contiguous tensors that follow one another in the given order.
std::string safetensors_header(std::span<const TensorToWrite> tensors);

}  // namespace tilewise::cli
