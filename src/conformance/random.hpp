// A small random generator whose numbers are the same on every platform and standard library, unlike the distributions of <random>.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace tilewise::conformance {

// splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
class Random {
public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t bits() {
        state_ += 0x9E3779B97F4A7C15ull;
        uint64_t x = state_;
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
        return x ^ (x >> 31);
    }
    // In [0, 1).
    double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
    double normal() { return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform()); }
    bool chance(double probability) { return uniform() < probability; }
    // In [0, count); count >= 1.
    int64_t below(int64_t count) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(count)); }
    int between(int low, int high) { return low + static_cast<int>(below(high - low + 1)); }
    template <class T> T pick(std::initializer_list<T> choices) {
        return choices.begin()[below(static_cast<int64_t>(choices.size()))];
    }
    std::vector<int64_t> permutation(int64_t count) {
        std::vector<int64_t> order(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i) order[static_cast<size_t>(i)] = i;
        for (int64_t i = count - 1; i > 0; --i)
            std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(below(i + 1))]);
        return order;
    }

private:
    uint64_t state_;
};

}  // namespace tilewise::conformance
