// Values whose origin the compiler must not see.
#pragma once

namespace tilewise::ptx {

// The same value, but as good as new: what is computed from it is computed again, instead of being held in registers through a loop that
// has none left.
__device__ __forceinline__ int opaque(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

}  // namespace tilewise::ptx
