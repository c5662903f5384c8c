// The .npy format, versions 1 to 3: one array a file.
//
// read_npy: bytes -> tensor. Little-endian f2, f4, f8, i4, i8 and b1; bf16 is the two-byte void type V2, which is what numpy
// writes for ml_dtypes.bfloat16. Fortran order becomes strides, no element moves. Anything else (big-endian, objects,
// records, other integers) is refused with its name. The array must fill the file exactly: that is what tells a damaged
// shape from a right one.
// write: tensor -> header; the data follow it as they lie in memory.
#pragma once

#include "byte_source.hpp"
#include "host_tensor.hpp"

namespace tilewise::cli {

HostTensor read_npy(const ByteSource& source);
// Magic, version 1.0 and header of a contiguous tensor, a multiple of 64 bytes long.
std::string npy_header(DType dtype, std::span<const int64_t> shape);

}  // namespace tilewise::cli
