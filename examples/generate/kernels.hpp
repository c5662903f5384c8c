// The two inner loops of the linear layers, compiled once per instruction set and chosen when the program starts.
//
//   dequantize: one row of quantised blocks -> `cols` floats
//   multiply:   out[t][r] = sum_c weight[r][c] * x[t][c] for a panel of rows and all tokens t, in fp32
//
// Weights stay quantised in memory and are expanded into a panel that fits the first-level cache: reading 5 bits per
// weight instead of 32 is what decode speed comes from, and prefill reuses each expanded panel for all its tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor_type.hpp"

namespace tilewise::generate {

// Rows a panel holds at most: four rows of 1,536 floats fill half of a 48 KiB first-level cache.
inline constexpr std::int64_t kPanelRows = 4;

struct PanelProduct {
    TensorType type;
    const std::byte* weight;  // (rows, cols) in blocks of `type`
    std::int64_t row_bytes;
    std::int64_t rows;  // 1 .. kPanelRows
    std::int64_t cols;
    const float* x;  // (tokens, cols)
    std::int64_t tokens;
    float* out;  // (tokens, rows), `out_stride` floats from token to token
    std::int64_t out_stride;
    float* panel;  // scratch of kPanelRows * cols floats
};

struct Kernels {
    const char* name;
    void (*dequantize)(TensorType type, const std::byte* row, std::int64_t cols, float* out);
    void (*multiply)(const PanelProduct& product);
};

// The sets that this processor runs, the widest first; never empty.
std::span<const Kernels* const> available_kernels();

inline const Kernels& kernels() { return *available_kernels().front(); }

}  // namespace tilewise::generate
