// What the tests of the CPU tile functions share: the instruction sets of this machine, random values, distances in
// ulp.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/tensor.hpp"
#include "cpu/simd/dispatch.hpp"

namespace tilewise::test {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

inline std::vector<Isa> runnable_isas() {
    std::vector<Isa> isas;
    for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16})
        if (cpu::can_run(isa)) isas.push_back(isa);
    return isas;
}

// A test of one instruction set; INSTANTIATE with all that the machine has.
class TileOpsTest : public ::testing::TestWithParam<Isa> {
protected:
    const cpu::TileOps& ops() const { return cpu::tile_ops(GetParam()); }
};

inline std::string isa_name(const ::testing::TestParamInfo<Isa>& info) { return name_of(info.param); }

class Random {
public:
    explicit Random(uint64_t seed) : engine_(seed) {}
    float normal() { return normal_(engine_); }
    int in(int low, int high) { return low + static_cast<int>(engine_() % static_cast<uint64_t>(high - low + 1)); }
    std::vector<float> normals(size_t count) {
        std::vector<float> values(count);
        for (float& value : values) value = normal();
        return values;
    }

private:
    std::mt19937_64 engine_;
    std::normal_distribution<float> normal_;
};

// Distance in units of the last place of `expected`.
inline double ulps(float actual, double expected) {
    const float nearest = static_cast<float>(expected);
    const double unit =
        static_cast<double>(std::nextafter(std::abs(nearest), kInf)) - std::abs(static_cast<double>(nearest));
    return std::abs(static_cast<double>(actual) - expected) / unit;
}

}  // namespace tilewise::test
