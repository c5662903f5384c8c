// The tensors of an instance and their values: lengths, cache, data, mask and score, outputs; see instance_parts.hpp.
#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/element.hpp"
#include "conformance/instance_parts.hpp"

namespace tilewise::conformance {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int kOutOfRange = 1 << 29;  // a page id that no cache has

TensorData& add(Instance& instance, Slot slot, DType dtype, std::vector<int64_t> shape, double fill = kNaN) {
    TensorData& tensor = instance.tensors[slot];
    tensor.dtype = dtype;
    tensor.shape = std::move(shape);
    tensor.values.assign(static_cast<size_t>(tensor.num_elements()), fill);
    return tensor;
}

void add_ints(Instance& instance, Slot slot, const std::vector<int>& values) {
    if (values.empty()) return;
    TensorData& tensor = add(instance, slot, DType::kI32, {static_cast<int64_t>(values.size())});
    std::copy(values.begin(), values.end(), tensor.values.begin());
}

void add_cumulative(Instance& instance, Slot slot, const std::vector<int>& rows) {
    if (rows.empty()) return;
    std::vector<int> sums{0};
    for (const int n : rows) sums.push_back(sums.back() + n);
    add_ints(instance, slot, sums);
}

std::vector<int64_t> row_shape(const Instance& instance, const std::vector<int>& ragged, int64_t dense_rows) {
    if (ragged.empty()) return {instance.spec.sizes.batch, dense_rows};
    int64_t total = instance.spec.lengths.spare_rows;
    for (const int n : ragged) total += n;
    return {total};
}

std::vector<int64_t> with(std::vector<int64_t> shape, std::initializer_list<int64_t> more) {
    shape.insert(shape.end(), more);
    return shape;
}

// Of lse and its gradient.
DType row_dtype(const Instance& instance) { return instance.dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

// How one element of q or k is drawn. `sign` is +1 in q and -1 in k, so that products come out with the wanted sign.
double draw(const Instance& instance, int sign, int64_t dim, Random& random) {
    switch (instance.spec.data) {
    case Data::kVeryNegative: return dim == 0 ? (sign > 0 ? 2048 : -1024) : random.normal();
    case Data::kOutlier:
        if (dim == 0) return sign > 0 ? 1 : -120 * std::sqrt(static_cast<double>(instance.spec.sizes.head_dim));
        return 0.1 * random.normal();
    case Data::kZeros: return 0;
    case Data::kLarge: return instance.dtype == DType::kF16 ? 30000 : 133120;
    default: return random.normal();
    }
}

// Fills row `row` of a (rows, heads, dim) tensor, every value rounded to its type.
template <class Draw> void fill_row(TensorData& tensor, int64_t row, Draw&& draw_one) {
    const int64_t dim = tensor.shape.back(), heads = tensor.shape[tensor.shape.size() - 2];
    for (int64_t i = 0; i < heads * dim; ++i)
        tensor.values[static_cast<size_t>(row * heads * dim + i)] = rounded(tensor.dtype, draw_one(i % dim));
}

double draw_value(const Instance& instance, Random& random) {
    if (instance.spec.data == Data::kZeros) return 0;
    if (instance.spec.data == Data::kLarge) return draw(instance, 1, 0, random);
    return random.normal();
}

// Axes of size 1 where the pair broadcasts.
std::vector<int64_t> pair_shape(const Instance& instance, const PairSpec& pair) {
    std::vector<int64_t> shape{instance.spec.sizes.batch, instance.spec.sizes.heads_q, instance.max_rows_q,
                               instance.max_rows_k};
    for (size_t axis = 0; axis < 4; ++axis)
        if ((pair.broadcast >> axis & 1) != 0 && !pair.stride_zero) shape[axis] = 1;
    return shape;
}

// Calls visit(index) for every place of a pair tensor that a sequence reaches, more than once where it broadcasts.
template <class Visit> void for_each_pair(const Instance& instance, const TensorData& tensor, Visit&& visit) {
    for (size_t s = 0; s < instance.sequences.size(); ++s)
        for (int64_t head = 0; head < instance.spec.sizes.heads_q; ++head)
            for (int64_t row = 0; row < instance.sequences[s].num_rows; ++row)
                for (int64_t key = 0; key < instance.sequences[s].num_keys(); ++key)
                    visit(instance.pair_index(tensor, s, head, row, key), row);
}

void add_mask(Instance& instance, Random& random) {
    const PairSpec& pair = instance.spec.mask.mask;
    if (!pair.given) return;
    const bool bits = pair.dtype == DType::kBits;
    std::vector<int64_t> shape = pair_shape(instance, pair);
    if (bits) shape[3] = (shape[3] + 7) / 8;
    TensorData& mask = add(instance, Slot::kMask, bits ? DType::kBits : DType::kBool, shape, 0);
    mask.shared_axes = pair.stride_zero ? pair.broadcast : 0;
    for (double& value : mask.values) value = bits ? static_cast<double>(random.below(256)) : random.chance(0.7);
    // Some rows see nothing at all.
    const auto keys = static_cast<size_t>(shape[3]);
    for (size_t row = 0; keys > 0 && row < mask.values.size() / keys; ++row)
        if (random.chance(0.1)) std::fill_n(mask.values.begin() + static_cast<std::ptrdiff_t>(row * keys), keys, 0.0);
}

void add_intervals(Instance& instance, Random& random) {
    if (!instance.spec.mask.intervals) return;
    const auto shape = row_shape(instance, instance.spec.lengths.rows_q, instance.spec.sizes.seqlen_q);
    TensorData& begin = add(instance, Slot::kKeyBegin, DType::kI32, shape, -kOutOfRange);
    TensorData& end = add(instance, Slot::kKeyEnd, DType::kI32, shape, kOutOfRange);
    for (const SequenceData& sequence : instance.sequences)
        for (int64_t row = 0; row < sequence.num_rows; ++row) {
            const auto index = static_cast<size_t>(sequence.first_row + row);
            const int keys = static_cast<int>(sequence.num_keys());
            begin.values[index] = random.between(-2, std::max(keys / 2, 0));
            end.values[index] = begin.values[index] + random.between(-1, keys + 2);
        }
}

void add_rotary(Instance& instance, Random& random) {
    const CacheSpec& cache = instance.spec.cache;
    if (cache.rotary_dim == 0) return;
    int64_t positions = std::max(1, cache.new_rows);
    for (size_t i = 0; i < instance.sequences.size(); ++i) {
        const SequenceData& s = instance.sequences[i];
        const int64_t added = cache.ragged_new.empty() ? cache.new_rows : cache.ragged_new[i];
        // The rows past seqused_q have positions, too.
        const auto& rows = instance.spec.lengths.rows_q;
        const int64_t allocated = rows.empty() ? instance.spec.sizes.seqlen_q : rows[i];
        positions = std::max(positions, s.rotary_position + std::max<int64_t>(added, allocated));
    }
    const DType dtype = cache.rotary_f32 ? DType::kF32 : instance.dtype;
    const int64_t pairs = cache.rotary_dim / 2;
    TensorData& cos = add(instance, Slot::kRotaryCos, dtype, {positions, pairs});
    TensorData& sin = add(instance, Slot::kRotarySin, dtype, {positions, pairs});
    for (size_t i = 0; i < cos.values.size(); ++i) {
        const double angle = 6.283185307179586 * random.uniform();
        cos.values[i] = rounded(dtype, std::cos(angle));
        sin.values[i] = rounded(dtype, std::sin(angle));
    }
}

void add_gradients(Instance& instance, const std::vector<int64_t>& o_shape, const std::vector<int64_t>& lse_shape,
                   Random& random) {
    TensorData& grad_o = add(instance, Slot::kGradO, instance.dtype, o_shape);
    for (const SequenceData& sequence : instance.sequences)
        for (int64_t row = 0; row < sequence.num_rows; ++row)
            fill_row(grad_o, sequence.first_row + row, [&](int64_t) { return random.normal(); });
    if (instance.spec.run.grad_lse) {
        TensorData& grad_lse = add(instance, Slot::kGradLse, row_dtype(instance), lse_shape);
        for (size_t s = 0; s < instance.sequences.size(); ++s)
            for (int64_t head = 0; head < instance.spec.sizes.heads_q; ++head)
                for (int64_t row = 0; row < instance.sequences[s].num_rows; ++row)
                    grad_lse.values[static_cast<size_t>(instance.lse_index(s, head, row))] =
                        rounded(grad_lse.dtype, random.normal());
    }
    const std::pair<Slot, Slot> wanted[] = {{Slot::kGradQ, Slot::kQ},
                                            {Slot::kGradK, Slot::kK},
                                            {Slot::kGradV, Slot::kV},
                                            {Slot::kGradBias, Slot::kBias},
                                            {Slot::kGradSink, Slot::kSink}};
    for (const auto& [gradient, of] : wanted)
        if (instance.has(of))
            add(instance, gradient, instance.at(of).dtype, instance.at(of).shape).access = Access::kOut;
}

}  // namespace

void add_lengths(Instance& instance) {
    const LengthsSpec& lengths = instance.spec.lengths;
    add_cumulative(instance, Slot::kCuSeqlensQ, lengths.rows_q);
    add_cumulative(instance, Slot::kCuSeqlensK, lengths.rows_k);
    add_ints(instance, Slot::kSequsedQ, lengths.used_q);
    add_ints(instance, Slot::kSequsedK, lengths.used_k);
    add_ints(instance, Slot::kLeftpadK, lengths.leftpad);
    add_ints(instance, Slot::kPrefixLens, instance.spec.mask.prefix_lens);
}

void add_cache(Instance& instance, const CachePlaces& cache, Random& random) {
    const CacheSpec& spec = instance.spec.cache;
    add_ints(instance, Slot::kCacheSeqlens, spec.lengths);
    add_ints(instance, Slot::kRotarySeqlens, spec.rotary_seqlens);
    add_cumulative(instance, Slot::kCuSeqlensKNew, spec.ragged_new);
    if (spec.batch_idx)
        add_ints(instance, Slot::kCacheBatchIdx,
                 {cache.cache_rows.begin(), cache.cache_rows.begin() + instance.spec.sizes.batch});
    if (spec.page_size > 0) {
        TensorData& table = add(instance, Slot::kPageTable, DType::kI32, {cache.num_rows, cache.max_pages});
        for (size_t i = 0; i < table.values.size(); ++i)
            table.values[i] = cache.used_pages[i] != 0 ? static_cast<double>(cache.page_table[i])
                                                       : random.pick({-1, kOutOfRange, -kOutOfRange});
    }
    add_rotary(instance, random);
}

void add_data(Instance& instance, const CachePlaces& cache, Random& random) {
    const ProblemSpec& spec = instance.spec;
    const SizesSpec& sizes = spec.sizes;
    std::vector<int64_t> keys{cache.num_rows, sizes.seqlen_k};
    if (!spec.lengths.rows_k.empty()) keys = row_shape(instance, spec.lengths.rows_k, 0);
    if (spec.cache.page_size > 0) keys = {cache.num_pages, spec.cache.page_size};
    TensorData& k = add(instance, Slot::kK, instance.dtype, with(keys, {sizes.heads_kv, sizes.head_dim}));
    TensorData& v = add(instance, Slot::kV, instance.dtype, with(keys, {sizes.heads_kv, sizes.head_dim_v}));
    const auto fill_keys = [&](TensorData& key_tensor, TensorData& value_tensor, int64_t row) {
        fill_row(key_tensor, row, [&](int64_t dim) { return draw(instance, -1, dim, random); });
        fill_row(value_tensor, row, [&](int64_t) { return draw_value(instance, random); });
    };
    for (const SequenceData& sequence : instance.sequences)
        for (int64_t key = 0; key < std::min(sequence.num_cached, sequence.num_keys()); ++key)
            fill_keys(k, v, sequence.key_rows[static_cast<size_t>(key)]);
    for (const SequenceData& sequence : instance.sequences) {
        if (sequence.num_cached == 0) continue;
        const int64_t middle = sequence.key_rows[static_cast<size_t>(sequence.num_cached / 2)];
        if (spec.data == Data::kNaNKey) fill_row(k, middle, [](int64_t) { return kNaN; });
        if (spec.data == Data::kNaNValue) fill_row(v, middle, [](int64_t) { return kNaN; });
    }
    if (spec.cache.appends()) {
        const bool ragged = !spec.cache.ragged_new.empty();
        const auto rows = ragged ? row_shape(instance, spec.cache.ragged_new, 0)
                                 : std::vector<int64_t>{sizes.batch, spec.cache.new_rows};
        TensorData& k_new = add(instance, Slot::kKNew, instance.dtype, with(rows, {sizes.heads_kv, sizes.head_dim}));
        TensorData& v_new = add(instance, Slot::kVNew, instance.dtype, with(rows, {sizes.heads_kv, sizes.head_dim_v}));
        for (const SequenceData& sequence : instance.sequences)
            for (int64_t key = sequence.num_cached; key < sequence.num_keys(); ++key)
                fill_keys(k_new, v_new, sequence.first_new + key - sequence.num_cached);
    }
    if (spec.op == Op::kAppend) return;
    const auto queries = row_shape(instance, spec.lengths.rows_q, sizes.seqlen_q);
    TensorData& q = add(instance, Slot::kQ, instance.dtype, with(queries, {sizes.heads_q, sizes.head_dim}));
    for (const SequenceData& sequence : instance.sequences)
        for (int64_t row = 0; row < sequence.num_rows; ++row)
            fill_row(q, sequence.first_row + row, [&](int64_t dim) { return draw(instance, 1, dim, random); });
}

void add_mask_and_score(Instance& instance, Random& random) {
    const ScoreSpec& score = instance.spec.score;
    const SizesSpec& sizes = instance.spec.sizes;
    if (instance.spec.op == Op::kAppend) return;
    add_mask(instance, random);
    add_intervals(instance, random);
    if (score.alibi_rank > 0) {
        const std::vector<int64_t> shape = score.alibi_rank == 1 ? std::vector<int64_t>{sizes.heads_q}
                                                                 : std::vector<int64_t>{sizes.batch, sizes.heads_q};
        for (double& slope : add(instance, Slot::kAlibiSlopes, DType::kF32, shape).values)
            slope = rounded(DType::kF32, std::exp2(-8 * random.uniform()));
    }
    if (score.bias.given) {
        const DType dtype = score.bias.dtype == DType::kNone ? instance.dtype : score.bias.dtype;
        TensorData& bias = add(instance, Slot::kBias, dtype, pair_shape(instance, score.bias));
        bias.shared_axes = score.bias.stride_zero ? score.bias.broadcast : 0;
        for_each_pair(instance, bias, [&](int64_t index, int64_t) {
            double& value = bias.values[static_cast<size_t>(index)];
            if (std::isnan(value)) value = rounded(dtype, random.normal());
        });
    }
    if (score.sink)
        for (double& sink : add(instance, Slot::kSink, DType::kF32, {sizes.heads_q}).values)
            sink = rounded(DType::kF32, random.normal());
}

void add_outputs(Instance& instance, Random& random) {
    const ProblemSpec& spec = instance.spec;
    const SizesSpec& sizes = spec.sizes;
    if (spec.cache.appends())
        for (const Slot slot : {Slot::kK, Slot::kV}) {
            TensorData& cache = instance.tensors.at(slot);
            cache.access = Access::kInOut;
            cache.writable.assign(cache.values.size(), 0);
            const int64_t width = cache.shape[2] * cache.shape[3];
            for (const SequenceData& sequence : instance.sequences)
                for (int64_t key = sequence.num_cached; key < sequence.num_keys(); ++key)
                    std::fill_n(cache.writable.begin() + sequence.key_rows[static_cast<size_t>(key)] * width, width,
                                uint8_t{1});
        }
    if (spec.op == Op::kAppend) return;
    const auto rows = row_shape(instance, spec.lengths.rows_q, sizes.seqlen_q);
    const auto o_shape = with(rows, {sizes.heads_q, sizes.head_dim_v});
    const auto lse_shape = spec.lengths.rows_q.empty()
                               ? std::vector<int64_t>{sizes.batch, sizes.heads_q, sizes.seqlen_q}
                               : std::vector<int64_t>{sizes.heads_q, rows[0]};
    const bool backward = spec.op == Op::kBackward;
    const Access access = backward ? Access::kIn : Access::kOut;
    add(instance, Slot::kO, instance.dtype, o_shape).access = access;
    if (backward || spec.run.lse) add(instance, Slot::kLse, row_dtype(instance), lse_shape).access = access;
    if (backward) add_gradients(instance, o_shape, lse_shape, random);
}

void apply_layouts(Instance& instance) {
    for (auto& [slot, tensor] : instance.tensors) {
        const bool output = tensor.access == Access::kOut;
        tensor.layout = output ? instance.spec.output_layout : instance.spec.layout;
        const bool head_tensor = is_floating(tensor.dtype) && tensor.shape.size() >= 3 && slot != Slot::kLse &&
                                 slot != Slot::kGradLse && slot != Slot::kBias && slot != Slot::kGradBias;
        const bool may_share = head_tensor && tensor.access == Access::kIn && slot != Slot::kO;
        const auto rank = static_cast<uint32_t>(tensor.shape.size());
        if (may_share && tensor.layout == Layout::kSharedHeads) tensor.shared_axes = 1u << (rank - 2);
        if (may_share && tensor.layout == Layout::kSharedBatch && rank == 4) tensor.shared_axes = 1;
        if (tensor.shared_axes == 0 || tensor.values.empty()) continue;
        for (int64_t index = 0; index < tensor.num_elements(); ++index) {
            int64_t rest = index, source = 0, step = 1;
            for (size_t axis = rank; axis-- > 0;) {
                const int64_t place = rest % tensor.shape[axis];
                rest /= tensor.shape[axis];
                if ((tensor.shared_axes >> axis & 1) == 0) source += place * step;
                step *= tensor.shape[axis];
            }
            tensor.values[static_cast<size_t>(index)] = tensor.values[static_cast<size_t>(source)];
        }
    }
}

}  // namespace tilewise::conformance
