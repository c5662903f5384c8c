// One query row of the oracle; see reference_row.hpp.
//
// The maximum starts at -inf and lets NaN through; a row whose every visible score is -inf (a bias may be) counts as a row that
// sees no key, so that its output is 0 and not NaN.
#include "cpu/reference_row.hpp"

#include <cmath>
#include <limits>

namespace tilewise::cpu {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t key_offset(const HeadContext& context, const HeadTensor& tensor, int32_t key) {
    const KeyPlace place = context.view->place_of(context.sequence, key);
    return tensor.offset(place.page, place.slot, context.head_kv);
}

int64_t query_offset(const HeadContext& context, const HeadTensor& tensor, int32_t row) {
    return tensor.offset(context.sequence.q_batch, context.sequence.q_row + row, context.head_q);
}

double score_of(const HeadContext& context, double product, int32_t row, int32_t key) {
    double score = modified_score<double>(context.modifier, product, row, key);
    const PairTensor& bias = context.view->score.bias;
    if (bias.given())
        score += load_element(bias.data, bias.dtype, bias.offset(context.batch, context.head_q, row, key));
    return score;
}

bool keeps(const HeadContext& context, int32_t row, int32_t key) {
    const Dropout& dropout = context.view->score.dropout;
    if (dropout.threshold == 0) return true;
    const int64_t batch_head = context.batch * context.view->sizes.num_heads_q + context.head_q;
    return dropout_keeps(dropout.key, dropout.threshold, static_cast<uint32_t>(batch_head), static_cast<uint32_t>(row),
                         static_cast<uint32_t>(key));
}

double max_or_nan(double a, double b) { return a >= b || std::isnan(a) ? a : b; }

}  // namespace

HeadContext head_context(const View& view, int64_t batch, int64_t head_q) {
    HeadContext context;
    context.view = &view;
    context.batch = batch;
    context.head_q = head_q;
    context.head_kv = head_q / view.sizes.gqa_ratio();
    context.sequence = resolve_sequence(view.sequences, batch);
    context.mask = view.mask_of(batch, context.sequence);
    context.modifier = view.modifier_of(batch, head_q, context.sequence);
    context.sink = static_cast<double>(view.sink_of(head_q));
    context.keep_scale = 1.0 / (1.0 - static_cast<double>(view.launch.step->problem.score.dropout_p));
    return context;
}

RowSoftmax row_softmax(const HeadContext& context, int32_t row, std::span<const double> q,
                       std::span<VisibleKey> scratch) {
    const View& view = *context.view;
    const Interval interval = view.keys_of(context.mask, context.batch, context.sequence, row);
    size_t count = 0;
    double maximum = context.sink;
    for (int32_t key = interval.begin; key < interval.end; ++key) {
        if (!view.mask_allows(context.batch, context.head_q, row, key)) continue;
        VisibleKey& visible = scratch[count++];
        visible.key = key;
        visible.keep = keeps(context, row, key);
        visible.product = dot_key_row(context, view.k, key, q);
        visible.p = score_of(context, visible.product, row, key);
        maximum = max_or_nan(maximum, visible.p);
    }
    RowSoftmax result{scratch.first(count), -kInfinity, 0.0};
    if (maximum == -kInfinity) {
        for (VisibleKey& visible : result.keys) visible.p = 0.0;
        return result;
    }
    result.sink_p = std::exp(context.sink - maximum);
    double sum = result.sink_p;
    for (VisibleKey& visible : result.keys) {
        visible.p = std::exp(visible.p - maximum);
        sum += visible.p;
    }
    for (VisibleKey& visible : result.keys) visible.p /= sum;
    result.sink_p /= sum;
    result.lse = maximum + std::log(sum);
    return result;
}

void load_query_row(const HeadContext& context, const HeadTensor& tensor, int32_t row, std::span<double> values) {
    int64_t offset = query_offset(context, tensor, row);
    for (double& value : values) {
        value = load_element(tensor.data, tensor.dtype, offset);
        offset += tensor.dim_stride;
    }
}

void store_query_row(const HeadContext& context, const HeadTensor& tensor, int32_t row,
                     std::span<const double> values) {
    int64_t offset = query_offset(context, tensor, row);
    for (const double value : values) {
        store_element(tensor.data, tensor.dtype, offset, value);
        offset += tensor.dim_stride;
    }
}

double dot_key_row(const HeadContext& context, const HeadTensor& tensor, int32_t key, std::span<const double> values) {
    int64_t offset = key_offset(context, tensor, key);
    double sum = 0.0;
    for (const double value : values) {
        sum += value * load_element(tensor.data, tensor.dtype, offset);
        offset += tensor.dim_stride;
    }
    return sum;
}

void add_key_row(const HeadContext& context, const HeadTensor& tensor, int32_t key, double factor,
                 std::span<double> sums) {
    int64_t offset = key_offset(context, tensor, key);
    for (double& sum : sums) {
        sum += factor * load_element(tensor.data, tensor.dtype, offset);
        offset += tensor.dim_stride;
    }
}

}  // namespace tilewise::cpu
