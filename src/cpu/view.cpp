// Reads a launch's tensors out of (Step, Arguments); see view.hpp. Axes of size 1 get stride 0, so that a broadcast axis and an axis
// with a meaningless stride are the same thing to every kernel.
#include "cpu/view.hpp"

namespace tilewise::cpu {

namespace {

int64_t stride_of(const TensorDesc& t, int axis) { return t.dim(axis) == 1 ? 0 : t.step(axis); }

RowIntTensor row_int_tensor(const Step& step, const Arguments& arguments, Arg arg) {
    const TensorDesc& t = step.problem[arg];
    if (!t.given()) return {};
    const auto* data = static_cast<const int32_t*>(pointer_of(step, arguments, arg));
    if (t.rank == 1) return {data, 0, stride_of(t, 0)};
    return {data, stride_of(t, 0), stride_of(t, 1)};
}

SequenceTable sequence_table(const Step& step, const Arguments& arguments) {
    const Sizes& sizes = step.sizes;
    SequenceTable table;
    table.cu_seqlens_q = int_vector(step, arguments, Arg::kCuSeqlensQ);
    table.cu_seqlens_k = int_vector(step, arguments, Arg::kCuSeqlensK);
    table.seqused_q = int_vector(step, arguments, Arg::kSequsedQ);
    table.seqused_k = int_vector(step, arguments, Arg::kSequsedK);
    table.leftpad_k = int_vector(step, arguments, Arg::kLeftpadK);
    table.cache_batch_idx = int_vector(step, arguments, Arg::kCacheBatchIdx);
    table.seqlen_q = sizes.max_seqlen_q;
    table.seqlen_k = sizes.max_seqlen_k;
    return table;
}

Dropout dropout_of(const ScoreSpec& score) {
    if (score.dropout_p == 0.0f) return {};
    return {philox_key(score.dropout_seed, score.dropout_offset), dropout_threshold(score.dropout_p),
            1.0f / (1.0f - score.dropout_p)};
}

}  // namespace

void* pointer_of(const Step& step, const Arguments& arguments, Arg arg) {
    if (!step.problem.has(arg)) return nullptr;
    if (step.redirected[arg] > 0) return arguments.at<void>(step.redirected[arg] - 1);
    return arguments.pointers[arg];
}

HeadTensor head_tensor(const Step& step, const Arguments& arguments, Arg arg) {
    const TensorDesc& t = step.problem[arg];
    if (!t.given()) return {};
    void* data = pointer_of(step, arguments, arg);
    if (t.rank == 3) return {data, t.dtype, 0, stride_of(t, 0), stride_of(t, 1), stride_of(t, 2)};
    return {data, t.dtype, stride_of(t, 0), stride_of(t, 1), stride_of(t, 2), stride_of(t, 3)};
}

RowTensor row_tensor(const Step& step, const Arguments& arguments, Arg arg) {
    const TensorDesc& t = step.problem[arg];
    if (!t.given()) return {};
    void* data = pointer_of(step, arguments, arg);
    if (t.rank == 2) return {data, t.dtype, 0, stride_of(t, 0), stride_of(t, 1)};
    return {data, t.dtype, stride_of(t, 0), stride_of(t, 1), stride_of(t, 2)};
}

PairTensor pair_tensor(const Step& step, const Arguments& arguments, Arg arg) {
    const TensorDesc& t = step.problem[arg];
    if (!t.given()) return {};
    void* data = pointer_of(step, arguments, arg);
    const int64_t key_stride = t.dtype == DType::kBits ? t.step(3) : stride_of(t, 3);
    return {data, t.dtype, stride_of(t, 0), stride_of(t, 1), stride_of(t, 2), key_stride};
}

IntVector int_vector(const Step& step, const Arguments& arguments, Arg arg) {
    const TensorDesc& t = step.problem[arg];
    if (!t.given()) return {};
    return {static_cast<const int32_t*>(pointer_of(step, arguments, arg)), stride_of(t, 0)};
}

View make_view(const Step& step, const Arguments& arguments) {
    View view;
    view.launch = {&step, &arguments};
    view.sizes = step.sizes;
    view.sequences = sequence_table(step, arguments);
    if (const TensorDesc& t = step.problem[Arg::kPageTable]; t.given())
        view.pages = {static_cast<const int32_t*>(pointer_of(step, arguments, Arg::kPageTable)), stride_of(t, 0),
                      stride_of(t, 1), step.sizes.page_size};
    view.q = head_tensor(step, arguments, Arg::kQ);
    view.k = head_tensor(step, arguments, Arg::kK);
    view.v = head_tensor(step, arguments, Arg::kV);
    view.o = head_tensor(step, arguments, Arg::kO);
    view.lse = row_tensor(step, arguments, Arg::kLse);
    view.visibility = {pair_tensor(step, arguments, Arg::kMask), row_int_tensor(step, arguments, Arg::kKeyBegin),
                       row_int_tensor(step, arguments, Arg::kKeyEnd)};
    view.bias = pair_tensor(step, arguments, Arg::kBias);
    view.dropout = dropout_of(step.problem.score);
    return view;
}

IntervalMask View::mask_of(int64_t batch, const Sequence& s) const {
    MaskSpec spec = launch.step->problem.mask;
    const IntVector prefixes = int_vector(*launch.step, *launch.arguments, Arg::kPrefixLens);
    if (prefixes.given()) spec.prefix = prefixes[batch];
    return resolve_mask(spec, s.seqlen_q, s.seqlen_k);
}

Interval View::keys_of(const IntervalMask& interval_mask, int64_t batch, const Sequence& s, int32_t row) const {
    Interval keys = row_interval(interval_mask, row);
    const int64_t absolute = s.q_row + row;
    if (visibility.key_begin.given()) keys = intersect(keys, {visibility.key_begin.at(batch, absolute), s.seqlen_k});
    if (visibility.key_end.given()) keys = intersect(keys, {0, visibility.key_end.at(batch, absolute)});
    return keys;
}

bool View::mask_allows(int64_t batch, int64_t head_q, int64_t row, int64_t key) const {
    if (!visibility.mask.given()) return true;
    const PairTensor& mask = visibility.mask;
    const auto* bytes = static_cast<const uint8_t*>(mask.data);
    if (mask.dtype == DType::kBits) return bytes[mask.offset(batch, head_q, row, key / 8)] >> (key % 8) & 1;
    return bytes[mask.offset(batch, head_q, row, key)] != 0;
}

ScoreModifier View::modifier_of(int64_t batch, int64_t head_q, const Sequence& s) const {
    ScoreModifier m;
    m.softmax_scale = softmax_scale_of(launch.step->problem);
    m.softcap = launch.step->problem.score.softcap;
    const TensorDesc& t = launch.step->problem[Arg::kAlibiSlopes];
    if (t.given()) {
        const int64_t offset =
            t.rank == 1 ? head_q * stride_of(t, 0) : batch * stride_of(t, 0) + head_q * stride_of(t, 1);
        m.alibi_slope =
            static_cast<const float*>(pointer_of(*launch.step, *launch.arguments, Arg::kAlibiSlopes))[offset];
        m.alibi_offset = s.seqlen_k - s.seqlen_q;
    }
    return m;
}

float View::sink_of(int64_t head_q) const {
    const TensorDesc& t = launch.step->problem[Arg::kSink];
    if (!t.given()) return negative_infinity();
    return static_cast<const float*>(pointer_of(*launch.step, *launch.arguments, Arg::kSink))[head_q * stride_of(t, 0)];
}

double load_element(const void* data, DType dtype, int64_t offset) {
    switch (dtype) {
    case DType::kF32: return static_cast<double>(static_cast<const float*>(data)[offset]);
    case DType::kF16: return static_cast<double>(to_float(static_cast<const F16*>(data)[offset]));
    case DType::kBF16: return static_cast<double>(to_float(static_cast<const BF16*>(data)[offset]));
    case DType::kF64: return static_cast<const double*>(data)[offset];
    default: return 0.0;  // integers and masks are never read through here
    }
}

void store_element(void* data, DType dtype, int64_t offset, double value) {
    switch (dtype) {
    case DType::kF32: static_cast<float*>(data)[offset] = static_cast<float>(value); break;
    case DType::kF16: static_cast<F16*>(data)[offset] = to_f16(static_cast<float>(value)); break;
    case DType::kBF16: static_cast<BF16*>(data)[offset] = to_bf16(static_cast<float>(value)); break;
    case DType::kF64: static_cast<double*>(data)[offset] = value; break;
    default: break;
    }
}

}  // namespace tilewise::cpu
