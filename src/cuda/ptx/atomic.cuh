// Words in global memory that blocks of a launch agree through. sm_70 and up.
#pragma once

#include <cstdint>

namespace tilewise::ptx {

// ld.relaxed.gpu, st.relaxed.gpu: see and are seen by atomics of other blocks, order nothing else.
__device__ __forceinline__ uint64_t load_relaxed(const uint64_t* word) {
    uint64_t x;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(word) : "memory");
    return x;
}
__device__ __forceinline__ void store_relaxed(uint64_t* word, uint64_t x) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(x) : "memory");
}
// atom.cas.relaxed.gpu: `desired` where the word is `expected`; returns the value before.
__device__ __forceinline__ uint64_t compare_and_swap(uint64_t* word, uint64_t expected, uint64_t desired) {
    uint64_t old;
    asm volatile("atom.cas.relaxed.gpu.global.b64 %0, [%1], %2, %3;"
                 : "=l"(old)
                 : "l"(word), "l"(expected), "l"(desired)
                 : "memory");
    return old;
}
// atom.add.acq_rel.gpu: returns the value before. What this thread knows of (its own writes, and those of its block before the last
// block barrier) is visible to whoever adds later.
__device__ __forceinline__ uint64_t add_acquire_release(uint64_t* word, uint64_t x) {
    uint64_t old;
    asm volatile("atom.add.acq_rel.gpu.global.u64 %0, [%1], %2;" : "=l"(old) : "l"(word), "l"(x) : "memory");
    return old;
}
// atom.add.relaxed.gpu: returns the value before; orders nothing.
__device__ __forceinline__ uint64_t add_relaxed(uint64_t* word, uint64_t x) {
    uint64_t old;
    asm volatile("atom.add.relaxed.gpu.global.u64 %0, [%1], %2;" : "=l"(old) : "l"(word), "l"(x) : "memory");
    return old;
}

}  // namespace tilewise::ptx
