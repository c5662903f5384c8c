// How the blocks of a row tile find out who is the last: a word a tile, with a tag in its low 48 bits and, above, a count of the splits that
// finished. A word without the tag is memory that no launch has used: whoever finds it so makes it a count of 0, before its own arrival. A
// launch leaves 0 behind, and so a workspace needs no clearing, and a captured graph none at its replay. The tag lies first in memory, so
// that whoever used the memory for something else meanwhile, be it for two bytes, destroyed it. Its first four bytes, read as a float, are a
// NaN that no arithmetic makes.
#pragma once

#include "cuda/ptx/atomic.cuh"

namespace tilewise::cuda::sm80 {

constexpr uint64_t kCounterTag = 0x5eed7fedc0deu;
constexpr uint64_t kCounterTagMask = 0xffffffffffffu;
constexpr int kCounterShift = 48;

// One thread.
__device__ __forceinline__ void prepare_counter(uint64_t* word) {
    const uint64_t found = ptx::load_relaxed(word);
    if ((found & kCounterTagMask) != kCounterTag) ptx::compare_and_swap(word, found, kCounterTag);
}
// True in the block that arrives last of `count`. All threads call it.
__device__ __forceinline__ bool arrive_last(uint64_t* word, int32_t count, bool& shared_answer) {
    __syncthreads();  // the block's writes are before its arrival
    if (threadIdx.x == 0) {
        const uint64_t before = ptx::add_acquire_release(word, uint64_t{1} << kCounterShift) >> kCounterShift;
        const bool last = before == static_cast<uint64_t>(count - 1);
        if (last) ptx::store_relaxed(word, kCounterTag);
        shared_answer = last;
    }
    __syncthreads();
    return shared_answer;
}

}  // namespace tilewise::cuda::sm80
