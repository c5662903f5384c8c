// Run-time choice of the tile functions: asks the CPU (and the operating system, whose part is whether it saves the
// wide registers) through the compiler's built-in. The tables themselves are built by tile_ops.cpp, once per
// instruction set.
#include "cpu/simd/dispatch.hpp"

namespace tilewise::cpu {

namespace simd {
namespace scalar {
const TileOps& table();
}
#if defined(TILEWISE_SIMD_X86)
namespace avx2 {
const TileOps& table();
}
namespace avx512 {
const TileOps& table();
}
namespace avx512_bf16 {
const TileOps& table();
}
#endif
}  // namespace simd

#if defined(TILEWISE_SIMD_X86)

bool can_run(Isa isa) {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    switch (isa) {
    case Isa::kScalar: return true;
    case Isa::kAvx2: return avx2;
    case Isa::kAvx512: return avx512;
    case Isa::kAvx512Bf16: return avx512 && __builtin_cpu_supports("avx512bf16");
    }
    return false;
}

const TileOps& tile_ops(Isa isa) {
    switch (isa) {
    case Isa::kScalar: break;
    case Isa::kAvx2: return simd::avx2::table();
    case Isa::kAvx512: return simd::avx512::table();
    case Isa::kAvx512Bf16: return simd::avx512_bf16::table();
    }
    return simd::scalar::table();
}

#else

bool can_run(Isa isa) { return isa == Isa::kScalar; }
const TileOps& tile_ops(Isa) { return simd::scalar::table(); }

#endif

}  // namespace tilewise::cpu
