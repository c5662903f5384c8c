// One query row of the oracle: which keys it sees, its scores, its probabilities. Forward and backward share it.
//
// Rows and keys are counted within their sequence (keys from the first valid one) wherever the contract speaks of i and j: in masks, bias,
// ALiBi and dropout. Only the keys that the row sees are ever read: nothing behind a mask can reach a result.
#pragma once

#include <cstdint>
#include <span>

#include "cpu/view.hpp"

namespace tilewise::cpu {

// All that the rows of one query head of one sequence share.
struct HeadContext {
    const View* view = nullptr;
    int64_t batch = 0;
    int64_t head_q = 0;
    int64_t head_kv = 0;
    Sequence sequence;
    IntervalMask mask;
    ScoreModifier modifier;
    double sink = 0;        // -inf without one
    double keep_scale = 1;  // 1 / (1 - dropout_p)
};
HeadContext head_context(const View& view, int64_t batch, int64_t head_q);

struct VisibleKey {
    int32_t key = 0;
    bool keep = true;    // dropout's decision
    double product = 0;  // q . k
    double p = 0;        // probability, before dropout
};

struct RowSoftmax {
    std::span<VisibleKey> keys;  // in ascending order
    double lse = 0;              // -inf: the row sees nothing, every p is 0
    double sink_p = 0;           // probability of the sink
};

// q: (head_dim) as double; scratch: room for every key of the sequence.
RowSoftmax row_softmax(const HeadContext& context, int32_t row, std::span<const double> q,
                       std::span<VisibleKey> scratch);

// A row of q, o or a gradient as doubles.
void load_query_row(const HeadContext& context, const HeadTensor& tensor, int32_t row, std::span<double> values);
void store_query_row(const HeadContext& context, const HeadTensor& tensor, int32_t row, std::span<const double> values);
// sum_d values[d] * tensor[key, d] and sums[d] += factor * tensor[key, d], for a row of k or v.
double dot_key_row(const HeadContext& context, const HeadTensor& tensor, int32_t key, std::span<const double> values);
void add_key_row(const HeadContext& context, const HeadTensor& tensor, int32_t key, double factor,
                 std::span<double> sums);

}  // namespace tilewise::cpu
