// A model's weights: matrices as views into the GGUF file, in the file's own quantised form, and norms as floats.
//
// Every shape is checked against the hyperparameters here, and a tensor that the architecture does not use is refused
// (a bias that would be left out silently makes a model that talks nonsense).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "config.hpp"
#include "gguf.hpp"

namespace tilewise::generate {

// (rows, cols), one row after the other; applied to a vector of `cols` it gives one of `rows`.
struct Matrix {
    std::span<const std::byte> bytes;
    TensorType type = TensorType::kF32;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t row_bytes = 0;

    const std::byte* row(std::int64_t index) const { return bytes.data() + index * row_bytes; }
};

struct LayerWeights {
    std::vector<float> attention_norm;
    Matrix q, k, v, attention_output;
    std::vector<float> ffn_norm;
    Matrix gate, up, down;
};

struct Weights {
    Matrix embedding;  // (vocabulary, width)
    std::vector<LayerWeights> layers;
    std::vector<float> output_norm;
    Matrix output;  // (vocabulary, width): the embedding itself where the file has no matrix of its own
};

Weights read_weights(const Gguf& file, const ModelConfig& config, std::int64_t vocabulary);

// One row as floats: out holds matrix.cols of them.
void dequantize_row(const Matrix& matrix, std::int64_t row, std::span<float> out);

}  // namespace tilewise::generate
