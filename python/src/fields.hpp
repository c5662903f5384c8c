// The table of keyword arguments: each is a member of a C struct.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilewise/tilewise.h"

namespace tilewise::python {

enum class Kind : std::uint8_t { kTensor, kInt32, kInt64, kUint64, kFloat, kFlag, kKernel };

// Operations that write the tensor, as bits 1 << tilewise_op.
using Ops = std::uint32_t;

struct Field {
    const char* name;
    Kind kind;
    size_t offset;           // of the member in its struct
    std::uint32_t flag = 0;  // kFlag: the bit; numbers: the bit that makes them hold, if any
    size_t flag_offset = 0;  // where that bit goes
    Ops written_by = 0;      // kTensor
};

extern const Field kAttentionFields[];
extern const size_t kNumAttentionFields;
extern const Field kCombinationFields[];
extern const size_t kNumCombinationFields;

}  // namespace tilewise::python
