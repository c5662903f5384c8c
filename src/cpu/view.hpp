// A launch as the CPU kernels see it. Built once a launch from (Step, Arguments) and read by all threads; both CPU implementations
// start from it.
//
// Tensors keep their element type here (void pointers with strides in elements); who reads them knows or asks the type.
#pragma once

#include "core/view.hpp"

namespace tilewise::cpu {

// What is launched; both live as long as the launch that made the view.
struct Launch {
    const Step* step = nullptr;
    const Arguments* arguments = nullptr;
};

struct View : AttentionView {
    Launch launch;
};

View make_view(const Step& step, const Arguments& arguments);

// One element as double and back (rounded once), for code where speed does not matter.
double load_element(const void* data, DType dtype, int64_t offset);
void store_element(void* data, DType dtype, int64_t offset, double value);

}  // namespace tilewise::cpu
