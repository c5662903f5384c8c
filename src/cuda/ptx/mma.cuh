// mma.sync: D = A B + D on the tensor cores, one warp, fp32 accumulators; sm_80 and up.
//
// Fragments of m16n8k16, lane = 4 g + t (g = 0..7, t = 0..3):
//   A (row major): a[0] = (g, 2t..2t+1), a[1] = (g+8, same), a[2] = (g, 2t+8..2t+9), a[3] = (g+8, same)
//   B (column major): b[0] = (k 2t..2t+1, n g), b[1] = (k 2t+8..2t+9, n g)
//   D: d[0..1] = (g, 2t..2t+1), d[2..3] = (g+8, same)
#pragma once

#include <cstdint>

namespace tilewise::ptx {

// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace tilewise::ptx
