// What the tests on a GPU share: a device or a reason to skip, tensors on it, and calls that are checked against the CPU.
//
// The programs use the library as one with CUDA of its own does: the public interface, and a CUDA runtime that is not the library's.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tilewise/tilewise.hpp"

namespace gpu_test {

inline int num_gpus() { return static_cast<int>(tilewise::devices().size()) - 1; }

// First in every test.
#define TILEWISE_NEEDS_GPUS(count)      \
    if (gpu_test::num_gpus() < (count)) \
    GTEST_SKIP() << "needs " << (count) << " GPU, and this machine has " << gpu_test::num_gpus()

inline void cuda_ok(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

inline tilewise::BF16 to_bf16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
inline float to_float(tilewise::BF16 value) {
    const uint32_t bits = uint32_t{value.bits} << 16;
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
}

// Values in [-1, 1) that depend on the seed and the place only.
inline std::vector<tilewise::BF16> values(int64_t count, uint32_t seed) {
    std::vector<tilewise::BF16> x(static_cast<size_t>(count));
    uint32_t state = seed * 2654435761u + 1;
    for (tilewise::BF16& value : x) {
        state = state * 1664525u + 1013904223u;
        value = to_bf16(static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1.0f);
    }
    return x;
}

// A range in a device's memory.
template <class T> class Array {
public:
    Array(const tilewise::Device& device, const std::vector<T>& host) : Array(device, host.size()) { set(host); }
    // Every byte 0xff: NaN, or -1.
    Array(const tilewise::Device& device, size_t count)
        : device_(device), count_(count), memory_(device, count * sizeof(T)) {
        clear();
    }
    T* data() const { return reinterpret_cast<T*>(memory_.data()); }
    void set(const std::vector<T>& host) {
        tilewise::copy(device_, memory_.data(), host.data(), memory_.size());
        tilewise::synchronize(device_);
    }
    void clear() {
        tilewise::fill(device_, memory_.data(), 0xff, memory_.size());
        tilewise::synchronize(device_);
    }
    std::vector<T> get() const {
        std::vector<T> host(count_);
        tilewise::copy(device_, host.data(), memory_.data(), memory_.size());
        tilewise::synchronize(device_);
        return host;
    }

private:
    tilewise::Device device_;
    size_t count_;
    tilewise::DeviceMemory memory_;
};

using Bits = std::vector<uint16_t>;
inline Bits bits_of(const std::vector<tilewise::BF16>& values) {
    Bits bits;
    for (const tilewise::BF16 value : values) bits.push_back(value.bits);
    return bits;
}

inline void expect_close(const std::vector<tilewise::BF16>& actual, const std::vector<tilewise::BF16>& expected,
                         float tolerance = 0.03f) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i)
        ASSERT_NEAR(to_float(actual[i]), to_float(expected[i]), tolerance) << "element " << i;
}

}  // namespace gpu_test
