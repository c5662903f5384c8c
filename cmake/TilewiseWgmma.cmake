# Writes cuda/ptx/wgmma.cuh: the warpgroup's matrix products. An asm statement needs its operands one by one, and C++ cannot make such a
# list from a number, so the header is written at configuration.

# "%first, ..., %last"
function(tilewise_wgmma_operands first count out_text)
    set(items)
    math(EXPR last "${first} + ${count} - 1")
    foreach(i RANGE ${first} ${last})
        list(APPEND items "%${i}")
    endforeach()
    list(JOIN items ", " text)
    set(${out_text} "${text}" PARENT_SCOPE)
endfunction()

# One struct, as WgmmaBF16<n>.
function(tilewise_wgmma_struct element type n out_text)
    math(EXPR count "${n} / 2")
    math(EXPR last "${count} - 1")
    set(accumulators)
    foreach(i RANGE ${last})
        list(APPEND accumulators "\"+f\"(d[${i}])")
    endforeach()
    list(JOIN accumulators ", " accumulators)
    tilewise_wgmma_operands(0 ${count} d)
    tilewise_wgmma_operands(${count} 4 fragment)
    foreach(offset RANGE 5)
        math(EXPR op${offset} "${count} + ${offset}")
    endforeach()
    set(name "wgmma.mma_async.sync.aligned.m64n${n}k16.f32.${type}.${type}")
    set(${out_text} "
template <> struct Wgmma${element}<${n}> {
    template <int kTransposedB, int kTransposedA = 0>
    static __device__ __forceinline__ void shared(float (&d)[${count}], uint64_t a, uint64_t b, int accumulate) {
        asm volatile(\"{ .reg .pred p; setp.ne.b32 p, %${op2}, 0; ${name} {${d}}, %${op0}, %${op1}, p, 1, 1, %${op3}, %${op4}; }\"
            : ${accumulators} : \"l\"(a), \"l\"(b), \"r\"(accumulate), \"n\"(kTransposedA), \"n\"(kTransposedB));
    }
    template <int kTransposedB>
    static __device__ __forceinline__ void registers(float (&d)[${count}], const uint32_t* a, uint64_t b, int accumulate) {
        asm volatile(\"{ .reg .pred p; setp.ne.b32 p, %${op5}, 0; ${name} {${d}}, {${fragment}}, %${op4}, p, 1, 1, %@TRANS@; }\"
            : ${accumulators} : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), \"r\"(accumulate), \"n\"(kTransposedB));
    }
};
" PARENT_SCOPE)
endfunction()

# The header, at `path`, with products of `columns` columns.
function(tilewise_write_wgmma path columns)
    set(text "// wgmma.mma_async m64 n<columns> k16 with float accumulators, both 16-bit element types. Written by cmake/TilewiseWgmma.cmake.
//   shared:    D (64 x n) (+)= A (64 x 16) B (16 x n), A and B in shared memory
//   registers: the same with A in registers
// kTransposedB: B lies with its n columns side by side (V), else with its 16 rows side by side (K). kTransposedA: A lies with its 64 rows side
// by side, else with its 16 columns. accumulate 0: D is overwritten.
#pragma once

#include <cstdint>

namespace tilewise::ptx {

template <int kColumns> struct WgmmaBF16;
template <int kColumns> struct WgmmaF16;
")
    foreach(n IN LISTS columns)
        foreach(pair IN ITEMS "BF16;bf16" "F16;f16")
            list(GET pair 0 element)
            list(GET pair 1 type)
            tilewise_wgmma_struct(${element} ${type} ${n} one)
            math(EXPR trans "${n} / 2 + 6")
            string(REPLACE "@TRANS@" "${trans}" one "${one}")
            string(APPEND text "${one}")
        endforeach()
    endforeach()
    string(APPEND text "\n}  // namespace tilewise::ptx\n")
    file(CONFIGURE OUTPUT "${path}" CONTENT "${text}" @ONLY)
endfunction()
