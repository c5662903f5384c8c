// The bulk copy engine (TMA): boxes of a tensor between global and shared memory, described by a tensor map. sm_90 and up.
#pragma once

#include <cstdint>

namespace tilewise::ptx {

// What the second-level cache should do with the lines of a copy: cache policies as createpolicy makes them.
enum class CacheHint : uint64_t { kEvictFirst = 0x12f0000000000000u, kEvictLast = 0x14f0000000000000u };

// Place of a box in a tensor of four axes, innermost first.
struct BoxPlace {
    int32_t column = 0;
    int32_t head = 0;
    int32_t row = 0;
    int32_t batch = 0;
};

// prefetch.tensormap
__device__ __forceinline__ void prefetch_tensor_map(const void* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// cp.async.bulk.tensor.4d global -> shared; its bytes are counted by `barrier`. Elements outside of the tensor arrive as zeros.
__device__ __forceinline__ void copy_box(uint32_t shared, const void* map, BoxPlace place, uint32_t barrier,
                                         CacheHint hint) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, "
        "%4, %5, %6}], [%2], %7;" ::"r"(shared),
        "l"(map), "r"(barrier), "r"(place.column), "r"(place.head), "r"(place.row), "r"(place.batch),
        "l"(static_cast<uint64_t>(hint))
        : "memory");
}
// cp.async.bulk global -> shared: both addresses and `bytes` are multiples of 16; counted by `barrier`.
__device__ __forceinline__ void copy_bytes(uint32_t shared, const void* from, uint32_t bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}
// cp.reduce.async.bulk.add.f32 shared -> global, in this thread's current group: multiples of 16 as above.
__device__ __forceinline__ void add_bytes(void* to, uint32_t shared, uint32_t bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(shared),
                 "r"(bytes)
                 : "memory");
}
// cp.async.bulk.tensor.4d shared -> global, in this thread's current group. Elements outside of the tensor are dropped.
__device__ __forceinline__ void store_box(const void* map, BoxPlace place, uint32_t shared) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(shared), "r"(place.column), "r"(place.head), "r"(place.row), "r"(place.batch)
                 : "memory");
}
// cp.async.bulk.commit_group: closes the group of this thread's stores so far.
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// cp.async.bulk.wait_group.read: until the shared memory of this thread's stores may be overwritten.
__device__ __forceinline__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
// cp.async.bulk.wait_group: until this thread's stores are in global memory.
__device__ __forceinline__ void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// fence.proxy.async, of every state space.
__device__ __forceinline__ void fence_async_proxy_all() { asm volatile("fence.proxy.async;" ::: "memory"); }
// fence.proxy.async: ordinary accesses to shared memory before it come before those of the copy engine and of wgmma after it.
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// stmatrix.x4: four 8x8 matrices of 16-bit elements; lanes 8i..8i+7 give the row addresses of matrix i, r[i] is its fragment.
__device__ __forceinline__ void stmatrix_x4(uint32_t row_address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row_address), "r"(r0), "r"(r1),
                 "r"(r2), "r"(r3)
                 : "memory");
}

// stmatrix.x4.trans: as above, each matrix transposed.
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t row_address, uint32_t r0, uint32_t r1, uint32_t r2,
                                                  uint32_t r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row_address), "r"(r0),
                 "r"(r1), "r"(r2), "r"(r3)
                 : "memory");
}

}  // namespace tilewise::ptx
