// Python objects as tilewise_tensor, without a copy and without the libraries they come from:
//   1. types with a DLPack exchange table (torch >= 2.10): one C call;
//   2. torch's older tensors, by data_ptr, shape, stride, dtype and device; meta tensors, where only a plan is wanted;
//   3. everything else with `__dlpack__`: NumPy, CuPy, JAX;
//   4. a tuple (address, dtype name, shape, strides or None, device name), for what these cannot express.
#pragma once

#include <cstdint>

#include "dlpack.hpp"
#include "python.hpp"
#include "tilewise/tilewise.h"

namespace tilewise::python {

struct TensorSource {
    tilewise_tensor tensor{};
    dlpack::Device device{dlpack::kCpu,
                          0};  // host memory that CUDA knows counts as the CPU's, managed memory as the GPU's
    bool is_meta = false;      // shape only
    bool is_read_only = false;
    const dlpack::ExchangeApi* api = nullptr;  // of the type, if that is where this came from
    Ref owner;                                 // keeps what the object lent for this call
};

enum class Purpose { kLaunch, kPlan };

// False with an exception set, whose message starts with `argument`. `stream` is what `__dlpack__` of an array on a GPU is told.
bool read_tensor(const char* argument, PyObject* object, Purpose purpose, TensorSource* source);

// Tests reach the slower ways through this switch.
void allow_exchange_table(bool allowed);

}  // namespace tilewise::python
