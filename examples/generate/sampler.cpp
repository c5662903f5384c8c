// Sampling in double. The uniform number is made from the generator's bits here and not by a standard distribution, whose
// results differ between standard libraries: one seed gives one text everywhere.
#include "sampler.hpp"

#include <cmath>
#include <stdexcept>

namespace tilewise::generate {

namespace {

std::int32_t largest_logit(std::span<const float> logits) {
    std::size_t best = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        if (std::isnan(logits[i])) {
            throw std::runtime_error("logits: token " + std::to_string(i) +
                                     " has NaN; the model's weights are damaged");
        }
        if (logits[i] > logits[best]) {
            best = i;
        }
    }
    return static_cast<std::int32_t>(best);
}

}  // namespace

Sampler::Sampler(double temperature, std::uint64_t seed) : temperature_(temperature), random_(seed) {
    if (!std::isfinite(temperature) || temperature < 0) {
        throw std::runtime_error("temperature: " + std::to_string(temperature) + "; 0 or more is allowed");
    }
}

std::int32_t Sampler::next(std::span<const float> logits) {
    const std::int32_t largest = largest_logit(logits);
    return temperature_ == 0 ? largest : draw(logits, largest);
}

std::int32_t Sampler::draw(std::span<const float> logits, std::int32_t largest) {
    const auto top = static_cast<double>(logits[static_cast<std::size_t>(largest)]);
    weights_.resize(logits.size());
    double total = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        weights_[i] = std::exp((static_cast<double>(logits[i]) - top) / temperature_);
        total += weights_[i];
    }
    double left = static_cast<double>(random_() >> 11) * 0x1p-53 * total;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        left -= weights_[i];
        if (left < 0) {
            return static_cast<std::int32_t>(i);
        }
    }
    return largest;  // rounding used up the total
}

}  // namespace tilewise::generate
