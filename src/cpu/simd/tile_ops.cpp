// The table of tile functions of one instruction set. Compiled once per set, with
//   TILEWISE_SIMD_TARGET  the set's name, which is also its namespace      TILEWISE_SIMD_HEADER  its vector vocabulary
// and that set's compiler flags; the only symbol that others use is the function `table`.
#include TILEWISE_SIMD_HEADER

#include "cpu/simd/kernel_softmax.hpp"
#if defined(TILEWISE_SIMD_HAS_PAIRS)
#    include "cpu/simd/kernel_pack_pairs.hpp"
#endif

namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET {

const TileOps& table() {
    static constexpr ProductOps kFloats = {FloatOperands::kFormat, pack_rows, pack_transposed, pack_panels,
                                           multiply<FloatOperands>};
#if defined(TILEWISE_SIMD_HAS_PAIRS)
    static constexpr ProductOps kBf16 = {PairOperands::kFormat, pack_rows_in_pairs, pack_transposed_in_pairs,
                                         pack_panels_in_pairs, multiply<PairOperands>};
#else
    static constexpr ProductOps kBf16 = kFloats;
#endif
    static constexpr TileOps kTable = {
        kWidth,  kRowTile, kRowQuantum, kFloats,    kBf16,    modify_scores,
        softmax, gradient, scale_rows,  store_rows, dot_rows,
    };
    return kTable;
}

}  // namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET
