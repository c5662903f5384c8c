// How the blocks of a row tile find out who is the last: a word a tile, with a tag and, in its low 16 bits, a count of the splits that
// finished. A word without the tag is memory that no launch has used: whoever finds it so makes it a count of 0, before its own arrival. A
// launch leaves 0 behind, and so a workspace needs no clearing, and a captured graph none at its replay. The tag, read as floats, is a NaN
// that no arithmetic makes.
#pragma once

#include "cuda/ptx/atomic.cuh"

namespace tilewise::cuda::sm80 {

constexpr uint64_t kCounterTag = 0x7fedc0de5eed0000u;
constexpr uint64_t kCounterMask = 0xffffu;

// One thread.
__device__ __forceinline__ void prepare_counter(uint64_t* word) {
    const uint64_t found = ptx::load_relaxed(word);
    if ((found & ~kCounterMask) != kCounterTag) ptx::compare_and_swap(word, found, kCounterTag);
}
// True in the block that arrives last of `count`. All threads call it.
__device__ __forceinline__ bool arrive_last(uint64_t* word, int32_t count, bool& shared_answer) {
    __syncthreads();  // the block's writes are before its arrival
    if (threadIdx.x == 0) {
        const bool last = (ptx::add_acquire_release(word, 1) & kCounterMask) == static_cast<uint64_t>(count - 1);
        if (last) ptx::store_relaxed(word, kCounterTag);
        shared_answer = last;
    }
    __syncthreads();
    return shared_answer;
}

}  // namespace tilewise::cuda::sm80
