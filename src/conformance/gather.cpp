// From tensors to full matrices; see gather.hpp. Slow and literal on purpose: each rule of the contract is one condition here.
#include "conformance/gather.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/dropout.hpp"
#include "conformance/element.hpp"

namespace tilewise::conformance {

namespace {

int64_t floor_division(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

bool is_positional(const MaskSpec& mask) {
    return mask.causal || mask.left.value_or(-1) >= 0 || mask.right.value_or(-1) >= 0 || mask.chunk > 0 ||
           mask.block > 0;
}

// Row `row` of a (rows, heads, dim) tensor, one head.
const double* head_row(const TensorData& tensor, int64_t row, int64_t head) {
    const int64_t dim = tensor.shape.back(), heads = tensor.shape[tensor.shape.size() - 2];
    return tensor.values.data() + (row * heads + head) * dim;
}

void append_row(const TensorData& tensor, int64_t row, int64_t head, std::vector<double>* rows) {
    const double* values = head_row(tensor, row, head);
    rows->insert(rows->end(), values, values + tensor.shape.back());
}

void rotate(const Instance& instance, int64_t position, Rotation rotation, double* row) {
    const CacheSpec& cache = instance.spec.cache;
    const int pairs = cache.rotary_dim / 2;
    for (int t = 0; t < pairs; ++t) {
        const auto angle = static_cast<size_t>(position * pairs + t);
        const double cos = instance.values(Slot::kRotaryCos)[angle], sin = instance.values(Slot::kRotarySin)[angle];
        double& a = row[cache.rotary_interleaved ? 2 * t : t];
        double& b = row[cache.rotary_interleaved ? 2 * t + 1 : t + pairs];
        const double x = a, y = b;
        a = x * cos - y * sin;
        b = x * sin + y * cos;
        if (rotation == Rotation::kExact) continue;
        const auto cos32 = static_cast<float>(cos), sin32 = static_cast<float>(sin);
        const auto x32 = static_cast<float>(x), y32 = static_cast<float>(y);
        a = rounded(instance.dtype, static_cast<double>(x32 * cos32 - y32 * sin32));
        b = rounded(instance.dtype, static_cast<double>(x32 * sin32 + y32 * cos32));
    }
}

void gather_queries(const Instance& instance, size_t s, int64_t head_q, Rotation rotation, DenseHead* head) {
    const SequenceData& sequence = instance.sequences[s];
    for (int64_t row = 0; row < sequence.num_rows; ++row) {
        append_row(instance.at(Slot::kQ), sequence.first_row + row, head_q, &head->q);
        if (!instance.has(Slot::kRotaryCos)) continue;
        const int64_t position = sequence.rotary_position + (is_positional(instance.spec.mask) ? row : 0);
        rotate(instance, position, rotation, head->q.data() + row * head->sizes.d);
    }
}

void gather_keys(const Instance& instance, size_t s, int64_t head_kv, Rotation rotation, DenseHead* head) {
    const SequenceData& sequence = instance.sequences[s];
    for (int64_t key = 0; key < sequence.num_keys(); ++key) {
        if (key < sequence.num_cached) {
            append_row(instance.at(Slot::kK), sequence.key_rows[static_cast<size_t>(key)], head_kv, &head->k);
            append_row(instance.at(Slot::kV), sequence.key_rows[static_cast<size_t>(key)], head_kv, &head->v);
        } else {
            const int64_t t = key - sequence.num_cached;
            const std::vector<double> k = new_key(instance, s, head_kv, t, rotation);
            head->k.insert(head->k.end(), k.begin(), k.end());
            append_row(instance.at(Slot::kVNew), sequence.first_new + t, head_kv, &head->v);
        }
    }
}

// ALiBi and bias of a pair.
double additive_term(const Instance& instance, size_t s, int64_t head_q, int64_t i, int64_t j) {
    const SequenceData& sequence = instance.sequences[s];
    double term = 0;
    if (instance.has(Slot::kAlibiSlopes)) {
        const TensorData& slopes = instance.at(Slot::kAlibiSlopes);
        const int64_t index = slopes.shape.size() == 1 ? head_q : static_cast<int64_t>(s) * slopes.shape[1] + head_q;
        const int64_t distance = i + sequence.num_keys() - sequence.num_rows - j;
        term -= slopes.values[static_cast<size_t>(index)] * static_cast<double>(std::abs(distance));
    }
    if (instance.has(Slot::kBias)) {
        const TensorData& bias = instance.at(Slot::kBias);
        term += bias.values[static_cast<size_t>(instance.pair_index(bias, s, head_q, i, j))];
    }
    return term;
}

void gather_pairs(const Instance& instance, size_t s, int64_t head_q, DenseHead* head) {
    const ScoreSpec& score = instance.spec.score;
    const bool has_terms = instance.has(Slot::kAlibiSlopes) || instance.has(Slot::kBias);
    const DropoutSource dropout{score.dropout_seed, score.dropout_offset, score.dropout_p};
    const auto batch_head = static_cast<uint64_t>(static_cast<int64_t>(s) * instance.spec.sizes.heads_q + head_q);
    for (int64_t i = 0; i < head->sizes.rows; ++i)
        for (int64_t j = 0; j < head->sizes.keys; ++j) {
            head->visible.push_back(is_visible(instance, s, head_q, i, j) ? 1 : 0);
            if (has_terms)
                head->additive.push_back(head->visible.back() != 0 ? additive_term(instance, s, head_q, i, j) : 0);
            if (score.dropout_p > 0)
                head->keep.push_back(
                    keeps(dropout, batch_head, static_cast<uint64_t>(i), static_cast<uint64_t>(j)) ? 1 : 0);
        }
}

}  // namespace

bool is_visible(const Instance& instance, size_t s, int64_t head_q, int64_t i, int64_t j) {
    const MaskSpec& mask = instance.spec.mask;
    const SequenceData& sequence = instance.sequences[s];
    const int64_t position = i + (mask.top_left ? 0 : sequence.num_keys() - sequence.num_rows);
    const int64_t left = mask.left.value_or(-1), right = mask.causal ? 0 : mask.right.value_or(-1);
    if (left >= 0 && j < position - left && sequence.prefix == 0) return false;
    if (right >= 0 && j > position + right && j >= sequence.prefix) return false;
    if (mask.chunk > 0 && j / mask.chunk != floor_division(position, mask.chunk)) return false;
    if (mask.block > 0 && j / mask.block > floor_division(position, mask.block) && j >= sequence.prefix) return false;
    if (mask.intervals) {
        const auto row = static_cast<size_t>(sequence.first_row + i);
        if (static_cast<double>(j) < instance.values(Slot::kKeyBegin)[row]) return false;
        if (static_cast<double>(j) >= instance.values(Slot::kKeyEnd)[row]) return false;
    }
    if (!instance.has(Slot::kMask)) return true;
    const TensorData& tensor = instance.at(Slot::kMask);
    if (tensor.dtype == DType::kBool)
        return tensor.values[static_cast<size_t>(instance.pair_index(tensor, s, head_q, i, j))] != 0;
    const auto byte = tensor.values[static_cast<size_t>(instance.pair_index(tensor, s, head_q, i, j / 8))];
    return (static_cast<unsigned>(byte) >> (j % 8) & 1u) != 0;
}

std::vector<double> new_key(const Instance& instance, size_t s, int64_t head_kv, int64_t t, Rotation rotation) {
    const SequenceData& sequence = instance.sequences[s];
    std::vector<double> row;
    append_row(instance.at(Slot::kKNew), sequence.first_new + t, head_kv, &row);
    if (instance.has(Slot::kRotaryCos)) rotate(instance, sequence.rotary_position + t, rotation, row.data());
    return row;
}

DenseHead gather_head(const Instance& instance, size_t s, int64_t head_q, Rotation rotation) {
    const SizesSpec& sizes = instance.spec.sizes;
    const ScoreSpec& score = instance.spec.score;
    const SequenceData& sequence = instance.sequences[s];
    DenseHead head;
    head.sizes = {sequence.num_rows, sequence.num_keys(), sizes.head_dim, sizes.head_dim_v};
    // The scale that the contract defaults to is a float, like one that the caller gives.
    const auto inverse_root = static_cast<float>(1 / std::sqrt(static_cast<double>(sizes.head_dim)));
    head.score.scale = static_cast<double>(score.scale.value_or(inverse_root));
    head.score.softcap = static_cast<double>(score.softcap);
    head.score.sink = instance.has(Slot::kSink) ? instance.values(Slot::kSink)[static_cast<size_t>(head_q)]
                                                : -std::numeric_limits<double>::infinity();
    head.score.keep_scale = 1 / (1 - static_cast<double>(score.dropout_p));
    gather_queries(instance, s, head_q, rotation, &head);
    gather_keys(instance, s, head_q / (sizes.heads_q / sizes.heads_kv), rotation, &head);
    gather_pairs(instance, s, head_q, &head);
    if (instance.spec.op != Op::kBackward) return head;
    head.is_backward = true;
    for (int64_t row = 0; row < sequence.num_rows; ++row) {
        append_row(instance.at(Slot::kGradO), sequence.first_row + row, head_q, &head.grad_o);
        if (instance.has(Slot::kGradLse))
            head.grad_lse.push_back(
                instance.values(Slot::kGradLse)[static_cast<size_t>(instance.lse_index(s, head_q, row))]);
    }
    return head;
}

}  // namespace tilewise::conformance
