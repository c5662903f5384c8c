// The llama network: token ids -> logits of the next token, with the attention itself left to Tilewise.
//
//   x = embedding;  each layer: x += Wo attention(norm(x));  x += Wdown(silu(Wgate norm(x)) * Wup norm(x));  logits = W norm(x)
//
// Tokens are fed in order, any number at a time; attention keeps their keys and values. Activations are fp32.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention.hpp"
#include "config.hpp"
#include "linear.hpp"
#include "thread_team.hpp"
#include "weights.hpp"

namespace tilewise::generate {

class Model {
public:
    Model(const ModelConfig& config, Weights weights, CachedAttention& attention, ThreadTeam& team);

    // Logits after the last of `tokens`, valid until the next call.
    std::span<const float> forward(std::span<const std::int32_t> tokens);

private:
    void embed(std::span<const std::int32_t> tokens);
    void attention_block(std::int64_t layer, std::int64_t tokens);
    void ffn_block(const LayerWeights& layer, std::int64_t tokens);
    void gate(std::int64_t tokens);

    ModelConfig config_;
    Weights weights_;
    CachedAttention& attention_;
    ThreadTeam& team_;
    Linear linear_;

    struct Activations {
        std::vector<float> x;          // (tokens, width), the residual stream
        std::vector<float> norm;       // (tokens, width)
        std::vector<float> projected;  // (tokens, width)
        std::vector<float> q;          // (tokens, num_heads_q, head_dim)
        std::vector<float> k, v;       // (tokens, num_heads_kv, head_dim)
        std::vector<float> attended;   // (tokens, num_heads_q, head_dim)
        std::vector<float> gate, up;   // (tokens, ffn_width)
        std::vector<float> logits;     // (vocabulary)
    } at_;
};

}  // namespace tilewise::generate
