// The inner loops for one instruction set. CMake compiles this file several times, each with its own compiler flags and
//   TILEWISE_KERNEL_SET    the namespace that the result lives in
//   TILEWISE_KERNEL_LANES  the header that defines its vectors: lanes_SET.hpp
//
// It calls no inline function of a header: the linker keeps one copy of such a function for the whole program, and that
// copy could come from here and hold instructions that the processor lacks.
#include "kernels.hpp"

#include <string.h>

#include TILEWISE_KERNEL_LANES

namespace tilewise::generate::TILEWISE_KERNEL_SET {

namespace {

constexpr std::int64_t kBlock = 32;  // elements in a Q4_1 or Q8_0 block
constexpr std::int64_t kHalf = kBlock / 2;

// How far ahead of the block at hand weights are fetched. A token reads every weight once, in 20-byte blocks that the
// processor's own prefetcher follows too slowly: with 2 KiB of distance a token takes less than half the time.
constexpr std::int64_t kFetchAheadBytes = 2048;

inline Vector load(const float* from) {
    Vector v;
    memcpy(&v, from, sizeof v);
    return v;
}

inline void store(float* to, Vector v) { memcpy(to, &v, sizeof v); }

inline Vector to_floats(IntVector v) { return __builtin_convertvector(v, Vector); }

// Pairwise: the sum of 16 lanes is four additions deep and not fifteen.
inline float sum_lanes(Vector v) {
    float lanes[kLanes];
    memcpy(lanes, &v, sizeof v);
    for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
        for (std::int64_t i = 0; i < width; ++i) {
            lanes[i] += lanes[i + width];
        }
    }
    return lanes[0];
}

// Exact for every half, subnormals, infinities and NaN included: the exponent is rebiased by a multiplication, which
// also normalises subnormals; only the largest exponent needs another rule.
inline float half_to_float(const std::byte* at) {
    std::uint16_t half;
    memcpy(&half, at, sizeof half);
    const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7fff) << 13;
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
    float scaled;
    memcpy(&scaled, &magnitude, sizeof scaled);
    scaled *= 0x1p112f;
    std::uint32_t bits;
    memcpy(&bits, &scaled, sizeof bits);
    bits = (magnitude >= 0x0f800000u ? (magnitude | 0x7f800000u) : bits) | sign;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

// Block: scale and minimum as halves, then 16 bytes; byte j holds element j in its low and j + 16 in its high nibble.
void dequantize_q4_1(const std::byte* row, std::int64_t cols, float* out) {
    for (std::int64_t c = 0; c < cols; c += kBlock) {
        __builtin_prefetch(row + kFetchAheadBytes);
        const float scale = half_to_float(row);
        const float minimum = half_to_float(row + 2);
        for (std::int64_t j = 0; j < kHalf; j += kLanes) {
            const IntVector packed = widen_unsigned(row + 4 + j);
            store(out + c + j, to_floats(packed & 15) * scale + minimum);
            store(out + c + kHalf + j, to_floats(packed >> 4) * scale + minimum);
        }
        row += 4 + kHalf;
    }
}

// Block: a scale as half, then 32 signed bytes.
void dequantize_q8_0(const std::byte* row, std::int64_t cols, float* out) {
    for (std::int64_t c = 0; c < cols; c += kBlock) {
        __builtin_prefetch(row + kFetchAheadBytes);
        const float scale = half_to_float(row);
        for (std::int64_t j = 0; j < kBlock; j += kLanes) {
            store(out + c + j, to_floats(widen_signed(row + 2 + j)) * scale);
        }
        row += 2 + kBlock;
    }
}

void dequantize(TensorType type, const std::byte* row, std::int64_t cols, float* out) {
    switch (type) {
    case TensorType::kF32: memcpy(out, row, static_cast<std::size_t>(cols) * sizeof(float)); break;
    case TensorType::kF16:
        for (std::int64_t c = 0; c < cols; ++c) {
            out[c] = half_to_float(row + 2 * c);
        }
        break;
    case TensorType::kQ41: dequantize_q4_1(row, cols, out); break;
    case TensorType::kQ80: dequantize_q8_0(row, cols, out); break;
    }
}

// kRows x kTokens dot products at once: each vector that is loaded serves several of them.
template <int kRows, int kTokens>
void multiply_tile(const PanelProduct& p, std::int64_t first_row, std::int64_t first_token) {
    const float* w = p.panel + first_row * p.cols;
    const float* x = p.x + first_token * p.cols;
    Vector sums[kRows][kTokens] = {};
    std::int64_t c = 0;
    for (; c + kLanes <= p.cols; c += kLanes) {
        Vector tokens[kTokens];
        for (int t = 0; t < kTokens; ++t) {
            tokens[t] = load(x + t * p.cols + c);
        }
        for (int r = 0; r < kRows; ++r) {
            const Vector row = load(w + r * p.cols + c);
            for (int t = 0; t < kTokens; ++t) {
                sums[r][t] += row * tokens[t];
            }
        }
    }
    for (int r = 0; r < kRows; ++r) {
        for (int t = 0; t < kTokens; ++t) {
            float sum = sum_lanes(sums[r][t]);
            for (std::int64_t rest = c; rest < p.cols; ++rest) {
                sum += w[r * p.cols + rest] * x[t * p.cols + rest];
            }
            p.out[(first_token + t) * p.out_stride + first_row + r] = sum;
        }
    }
}

template <int kRows> void multiply_rows(const PanelProduct& p, std::int64_t first_row) {
    std::int64_t t = 0;
    for (; t + 4 <= p.tokens; t += 4) {
        multiply_tile<kRows, 4>(p, first_row, t);
    }
    for (; t < p.tokens; ++t) {
        multiply_tile<kRows, 1>(p, first_row, t);
    }
}

void multiply(const PanelProduct& p) {
    for (std::int64_t r = 0; r < p.rows; ++r) {
        dequantize(p.type, p.weight + r * p.row_bytes, p.cols, p.panel + r * p.cols);
    }
    if (p.rows == kPanelRows) {
        multiply_rows<kPanelRows>(p, 0);
        return;
    }
    for (std::int64_t r = 0; r < p.rows; ++r) {
        multiply_rows<1>(p, r);
    }
}

}  // namespace

extern const Kernels kKernels;
const Kernels kKernels{TILEWISE_KERNEL_NAME, dequantize, multiply};

}  // namespace tilewise::generate::TILEWISE_KERNEL_SET
