// The inputs of an instance and their values: lengths, cache, data, mask and score; see instance_parts.hpp.
#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/element.hpp"
#include "conformance/instance_parts.hpp"

namespace tilewise::conformance {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int kOutOfRange = 1 << 29;  // a page id that no cache has

void add_ints(Instance& instance, Slot slot, const std::vector<int>& values) {
    if (values.empty()) return;
    TensorData& tensor = add_tensor(instance, slot, DType::kI32, {static_cast<int64_t>(values.size())});
    std::copy(values.begin(), values.end(), tensor.values.begin());
}

void add_cumulative(Instance& instance, Slot slot, const std::vector<int>& rows) {
    if (rows.empty()) return;
    std::vector<int> sums{0};
    for (const int n : rows) sums.push_back(sums.back() + n);
    add_ints(instance, slot, sums);
}

// Powers of two for q and for k whose product, scaled, lies between 1.2e5 and 2.4e5 (and is 2^28 at most, so that f16 holds them).
double very_negative_factor(const Instance& instance, int sign) {
    const double inverse_root = 1 / std::sqrt(static_cast<double>(instance.spec.sizes.head_dim));
    const double scale = instance.spec.score.scale ? static_cast<double>(*instance.spec.score.scale) : inverse_root;
    const int exponent = std::min(static_cast<int>(std::ceil(std::log2(1.2e5 / std::max(scale, 1e-9)))), 28);
    return std::exp2(sign > 0 ? exponent / 2 : exponent - exponent / 2);
}

// How one element of q or k is drawn. `sign` is +1 in q and -1 in k, so that products come out with the wanted sign.
double draw(const Instance& instance, int sign, int64_t dim, Random& random) {
    switch (instance.spec.data) {
    case Data::kVeryNegative: return dim == 0 ? sign * very_negative_factor(instance, sign) : random.normal();
    case Data::kOutlier:
        if (dim == 0) return sign > 0 ? 1 : -120 * std::sqrt(static_cast<double>(instance.spec.sizes.head_dim));
        return 0.1 * random.normal();
    case Data::kZeros: return 0;
    case Data::kLarge: return instance.dtype == DType::kF16 ? 30000 : 133120;
    default: return random.normal();
    }
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
    TensorData& mask = add_tensor(instance, Slot::kMask, bits ? DType::kBits : DType::kBool, shape, 0);
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
    TensorData& begin = add_tensor(instance, Slot::kKeyBegin, DType::kI32, shape, -kOutOfRange);
    TensorData& end = add_tensor(instance, Slot::kKeyEnd, DType::kI32, shape, kOutOfRange);
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
    TensorData& cos = add_tensor(instance, Slot::kRotaryCos, dtype, {positions, pairs});
    TensorData& sin = add_tensor(instance, Slot::kRotarySin, dtype, {positions, pairs});
    for (size_t i = 0; i < cos.values.size(); ++i) {
        const double angle = 6.283185307179586 * random.uniform();
        cos.values[i] = rounded(dtype, std::cos(angle));
        sin.values[i] = rounded(dtype, std::sin(angle));
    }
}

}  // namespace

TensorData& add_tensor(Instance& instance, Slot slot, DType dtype, std::vector<int64_t> shape, double fill) {
    TensorData& tensor = instance.tensors[slot];
    tensor.dtype = dtype;
    tensor.shape = std::move(shape);
    tensor.values.assign(static_cast<size_t>(tensor.num_elements()), fill);
    return tensor;
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
        TensorData& table = add_tensor(instance, Slot::kPageTable, DType::kI32, {cache.num_rows, cache.max_pages});
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
    TensorData& k = add_tensor(instance, Slot::kK, instance.dtype, with(keys, {sizes.heads_kv, sizes.head_dim}));
    TensorData& v = add_tensor(instance, Slot::kV, instance.dtype, with(keys, {sizes.heads_kv, sizes.head_dim_v}));
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
        TensorData& k_new =
            add_tensor(instance, Slot::kKNew, instance.dtype, with(rows, {sizes.heads_kv, sizes.head_dim}));
        TensorData& v_new =
            add_tensor(instance, Slot::kVNew, instance.dtype, with(rows, {sizes.heads_kv, sizes.head_dim_v}));
        for (const SequenceData& sequence : instance.sequences)
            for (int64_t key = sequence.num_cached; key < sequence.num_keys(); ++key)
                fill_keys(k_new, v_new, sequence.first_new + key - sequence.num_cached);
    }
    if (spec.op == Op::kAppend) return;
    const auto queries = row_shape(instance, spec.lengths.rows_q, sizes.seqlen_q);
    TensorData& q = add_tensor(instance, Slot::kQ, instance.dtype, with(queries, {sizes.heads_q, sizes.head_dim}));
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
        for (double& slope : add_tensor(instance, Slot::kAlibiSlopes, DType::kF32, shape).values)
            slope = rounded(DType::kF32, std::exp2(-8 * random.uniform()));
    }
    if (score.bias.given) {
        const DType dtype = score.bias.dtype == DType::kNone ? instance.dtype : score.bias.dtype;
        TensorData& bias = add_tensor(instance, Slot::kBias, dtype, pair_shape(instance, score.bias));
        bias.shared_axes = score.bias.stride_zero ? score.bias.broadcast : 0;
        for_each_pair(instance, bias, [&](int64_t index, int64_t) {
            double& value = bias.values[static_cast<size_t>(index)];
            if (std::isnan(value)) value = rounded(dtype, random.normal());
        });
    }
    if (score.sink)
        for (double& sink : add_tensor(instance, Slot::kSink, DType::kF32, {sizes.heads_q}).values)
            sink = rounded(DType::kF32, random.normal());
}

}  // namespace tilewise::conformance
