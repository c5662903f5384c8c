// Reads a launch's tensors out of (Step, Arguments); see view.hpp.
#include "core/view.hpp"

namespace tilewise {

namespace {

RowIntTensor row_int_tensor(const Step& step, const Arguments& arguments, Arg arg) {
    const TensorDesc& t = step.problem[arg];
    if (!t.given()) return {};
    const auto* data = static_cast<const int32_t*>(pointer_of(step, arguments, arg));
    if (t.rank == 1) return {data, 0, stride_of(t, 0)};
    return {data, stride_of(t, 0), stride_of(t, 1)};
}

HeadScalar head_scalar(const Step& step, const Arguments& arguments, Arg arg) {
    const TensorDesc& t = step.problem[arg];
    if (!t.given()) return {};
    const auto* data = static_cast<const float*>(pointer_of(step, arguments, arg));
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
    const bool paged = step.problem.has(Arg::kPageTable);
    table.cache_rows = step.problem[paged ? Arg::kPageTable : Arg::kK].dim(0);
    // Without a page or a row there is no key, whatever the table's size.
    const bool is_empty = table.cache_rows == 0 || step.problem[Arg::kK].dim(0) == 0;
    table.seqlen_k = is_empty ? 0 : sizes.max_seqlen_k;
    return table;
}

uint32_t last_page_of(const TensorDesc& k) {
    return static_cast<uint32_t>(clamp_to<int64_t>(k.dim(0) - 1, 0, 0x7fffffff));
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

AttentionView make_attention_view(const Step& step, const Arguments& arguments) {
    AttentionView view;
    view.sizes = step.sizes;
    view.sequences = sequence_table(step, arguments);
    if (const TensorDesc& t = step.problem[Arg::kPageTable]; t.given())
        view.pages = {static_cast<const int32_t*>(pointer_of(step, arguments, Arg::kPageTable)), stride_of(t, 0),
                      stride_of(t, 1), step.sizes.page_size, last_page_of(step.problem[Arg::kK])};
    view.q = head_tensor(step, arguments, Arg::kQ);
    view.k = head_tensor(step, arguments, Arg::kK);
    view.v = head_tensor(step, arguments, Arg::kV);
    view.o = head_tensor(step, arguments, Arg::kO);
    view.lse = row_tensor(step, arguments, Arg::kLse);
    view.visibility = {step.problem.mask, int_vector(step, arguments, Arg::kPrefixLens),
                       row_int_tensor(step, arguments, Arg::kKeyBegin), row_int_tensor(step, arguments, Arg::kKeyEnd),
                       pair_tensor(step, arguments, Arg::kMask)};
    view.score = {softmax_scale_of(step.problem),
                  step.problem.score.softcap,
                  head_scalar(step, arguments, Arg::kAlibiSlopes),
                  pair_tensor(step, arguments, Arg::kBias),
                  head_scalar(step, arguments, Arg::kSink),
                  dropout_of(step.problem.score)};
    return view;
}

}  // namespace tilewise
