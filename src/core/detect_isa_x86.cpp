// x86: instruction sets by cpuid, and by XCR0 whether the operating system saves their registers; without that, using them faults
// or loses data at the next task switch.
#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>

#include "core/detect_isa.hpp"

namespace tilewise {
namespace {

struct Registers {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};
Registers cpuid(unsigned leaf, unsigned subleaf = 0) {
    Registers r;
    __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
    return r;
}
bool bit(unsigned word, int index) { return (word >> index) & 1u; }

__attribute__((target("xsave"))) uint64_t enabled_state() { return _xgetbv(0); }

struct Feature {
    const char* name;
    bool present;
};
enum FeatureIndex { kAvx, kF16c, kFma, kAvx2, kAvx512f, kAvx512dq, kAvx512bw, kAvx512vl, kAvx512bf16, kNumFeatures };

std::array<Feature, kNumFeatures> detect_features() {
    const Registers one = cpuid(1);
    const Registers seven = cpuid(7);
    const Registers seven_one = seven.eax >= 1 ? cpuid(7, 1) : Registers{};
    const uint64_t state = bit(one.ecx, 27) ? enabled_state() : 0;
    const bool ymm = (state & 0x6) == 0x6;           // SSE and AVX registers
    const bool zmm = ymm && (state & 0xE0) == 0xE0;  // mask registers and both halves of the 512-bit ones
    return {{{"avx", ymm && bit(one.ecx, 28)},
             {"f16c", ymm && bit(one.ecx, 29)},
             {"fma", ymm && bit(one.ecx, 12)},
             {"avx2", ymm && bit(seven.ebx, 5)},
             {"avx512f", zmm && bit(seven.ebx, 16)},
             {"avx512dq", zmm && bit(seven.ebx, 17)},
             {"avx512bw", zmm && bit(seven.ebx, 30)},
             {"avx512vl", zmm && bit(seven.ebx, 31)},
             {"avx512bf16", zmm && bit(seven_one.eax, 5)}}};
}

}  // namespace

void detect_isa(CpuInfo& cpu) {
    const auto features = detect_features();
    for (const Feature& feature : features)
        if (feature.present) cpu.features += (cpu.features.empty() ? "" : " ") + std::string(feature.name);
    const auto has = [&](std::initializer_list<FeatureIndex> needed) {
        return std::all_of(needed.begin(), needed.end(), [&](FeatureIndex i) { return features[i].present; });
    };
    if (!has({kAvx, kF16c, kFma, kAvx2})) return;
    cpu.isa = Isa::kAvx2;
    if (!has({kAvx512f, kAvx512dq, kAvx512bw, kAvx512vl})) return;
    cpu.isa = has({kAvx512bf16}) ? Isa::kAvx512Bf16 : Isa::kAvx512;
}

std::string cpu_brand() {
    if (cpuid(0x80000000u).eax < 0x80000004u) return {};
    std::array<char, 49> text{};
    for (unsigned i = 0; i < 3; ++i) {
        const Registers r = cpuid(0x80000002u + i);
        std::memcpy(text.data() + 16 * i, &r, 16);
    }
    return text.data();
}

}  // namespace tilewise
