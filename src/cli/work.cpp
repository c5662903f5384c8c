// Counts pairs row by row from the mask's definition; rows are few compared with pairs.
#include "work.hpp"

#include <algorithm>

#include "slots.hpp"

namespace tilewise::cli {
namespace {

int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

double bytes_of(const Tensor& tensor) {
    if (!tensor.given()) return 0;
    double bytes = static_cast<double>(size_of(tensor.dtype()));
    for (int32_t axis = 0; axis < tensor.rank(); ++axis) {
        // A broadcast axis lies in memory once.
        if (tensor.stride(axis) != 0 || tensor.size(axis) == 0) bytes *= static_cast<double>(tensor.size(axis));
    }
    return bytes;
}

double bytes_of(const Call& call) {
    if (call.op == Op::kCombine) {
        const Combination& c = call.combination;
        return bytes_of(c.partial_o) + bytes_of(c.partial_lse) + bytes_of(c.o) + bytes_of(c.lse);
    }
    Attention attention = call.attention;
    double bytes = 0;
    for (const Slot& slot : slots()) bytes += bytes_of(slot.of(attention));
    if (call.op == Op::kAppend) {
        const Cache& cache = attention.cache;
        bytes += bytes_of(cache.k_new) + bytes_of(cache.v_new) - bytes_of(attention.k) - bytes_of(attention.v);
    }
    return bytes;
}

}  // namespace

int64_t visible_pairs(const Mask& mask, int64_t seqlen_q, int64_t seqlen_k) {
    const int64_t offset = mask.top_left ? 0 : seqlen_k - seqlen_q;
    const int64_t left = mask.window_left.value_or(-1);
    const int64_t right = mask.causal ? 0 : mask.window_right.value_or(-1);
    int64_t pairs = 0;
    for (int64_t row = 0; row < seqlen_q; ++row) {
        const int64_t position = row + offset;
        int64_t begin = left < 0 || mask.prefix > 0 ? 0 : position - left;
        int64_t end = right < 0 ? seqlen_k : position + right + 1;
        if (mask.chunk > 0) {
            const int64_t chunk_begin = floor_div(position, mask.chunk) * mask.chunk;
            begin = std::max(begin, chunk_begin);
            end = std::min(end, chunk_begin + mask.chunk);
        }
        if (mask.block > 0) end = std::min(end, (floor_div(position, mask.block) + 1) * mask.block);
        end = std::max(end, mask.prefix);
        pairs += std::max<int64_t>(std::min(end, seqlen_k) - std::max<int64_t>(begin, 0), 0);
    }
    return pairs;
}

Work work_of(const ProblemFlags& flags, const Call& call) {
    Work work{0, bytes_of(call)};
    if (call.op == Op::kCombine || call.op == Op::kAppend) return work;
    const SequenceLengths lengths = lengths_of(flags);
    double pairs = 0;
    for (size_t i = 0; i < lengths.q.size(); ++i) {
        const int64_t keys = lengths.k[i] - flags.lengths.leftpad;
        pairs += static_cast<double>(visible_pairs(call.attention.mask, lengths.q[i], std::max<int64_t>(keys, 0)));
    }
    pairs *= static_cast<double>(flags.shape.heads);
    const auto d = static_cast<double>(flags.shape.head_dim);
    const auto dv = static_cast<double>(flags.shape.head_dim_v.value_or(flags.shape.head_dim));
    work.flops = pairs * (call.op == Op::kBackward ? 6 * d + 4 * dv : 2 * (d + dv));
    return work;
}

double forward_flops(const Attention& attention) {
    const CallSizes sizes = sizes_of(attention);
    const auto pairs = static_cast<double>(visible_pairs(attention.mask, sizes.seqlen_q, sizes.seqlen_k));
    return pairs * static_cast<double>(sizes.batch * sizes.heads) * 2.0 *
           static_cast<double>(sizes.head_dim + sizes.head_dim_v);
}

}  // namespace tilewise::cli
