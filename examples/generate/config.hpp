// The hyperparameters of a llama-architecture model, from a GGUF file's metadata.
//
// What this program does not compute (other architectures, expert layers, scaled RoPE, value heads of another size) is
// refused here by name, never ignored: a model that loads is a model that is run as it was trained.
#pragma once

#include <cstdint>

#include "gguf.hpp"

namespace tilewise::generate {

struct HeadShape {
    std::int64_t num_heads_q = 0;
    std::int64_t num_heads_kv = 0;
    std::int64_t head_dim = 0;
    std::int64_t rotary_dim = 0;
    double rotary_base = 0;
};

struct ModelConfig {
    std::int64_t num_layers = 0;
    std::int64_t context_length = 0;
    std::int64_t width = 0;
    std::int64_t ffn_width = 0;
    float rms_epsilon = 0;
    HeadShape heads;
};

ModelConfig read_config(const Gguf& file);

}  // namespace tilewise::generate
