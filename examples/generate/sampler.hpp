// The next token from the logits: the largest one, or one drawn at a temperature.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace tilewise::generate {

class Sampler {
public:
    // temperature 0 takes the largest logit (of equals the lowest token) and never looks at the seed.
    Sampler(double temperature, std::uint64_t seed);

    std::int32_t next(std::span<const float> logits);

private:
    std::int32_t draw(std::span<const float> logits, std::int32_t largest);

    double temperature_;
    std::mt19937_64 random_;
    std::vector<double> weights_;
};

}  // namespace tilewise::generate
