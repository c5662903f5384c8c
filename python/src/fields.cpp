// The tables of fields.hpp, in the order of tilewise.h.
#include "fields.hpp"

#include <iterator>

namespace tilewise::python {

namespace {

constexpr Ops bit(tilewise_op op) { return 1u << op; }
constexpr Ops kForwards = bit(TILEWISE_FORWARD) | bit(TILEWISE_DECODE);
constexpr Ops kAppends = bit(TILEWISE_DECODE) | bit(TILEWISE_APPEND);
constexpr Ops kBackward = bit(TILEWISE_BACKWARD);

constexpr Field tensor(const char* name, size_t offset, Ops written_by = 0) {
    return {name, Kind::kTensor, offset, 0, 0, written_by};
}

constexpr size_t kMaskFlags = offsetof(tilewise_attention, mask.flags);
constexpr size_t kScoreFlags = offsetof(tilewise_attention, score.flags);
constexpr size_t kOptionFlags = offsetof(tilewise_attention, options.flags);

}  // namespace

#define AT(member) offsetof(tilewise_attention, member)
const Field kAttentionFields[] = {
    tensor("q", AT(q)),
    tensor("k", AT(k), kAppends),
    tensor("v", AT(v), kAppends),
    tensor("o", AT(o), kForwards),
    tensor("lse", AT(lse), kForwards),
    tensor("cu_seqlens_q", AT(lengths.cu_seqlens_q)),
    tensor("cu_seqlens_k", AT(lengths.cu_seqlens_k)),
    tensor("seqused_q", AT(lengths.seqused_q)),
    tensor("seqused_k", AT(lengths.seqused_k)),
    tensor("leftpad_k", AT(lengths.leftpad_k)),
    {"max_seqlen_q", Kind::kInt64, AT(lengths.max_seqlen_q)},
    {"max_seqlen_k", Kind::kInt64, AT(lengths.max_seqlen_k)},
    {"causal", Kind::kFlag, 0, TILEWISE_MASK_CAUSAL, kMaskFlags},
    {"top_left", Kind::kFlag, 0, TILEWISE_MASK_TOP_LEFT, kMaskFlags},
    {"chunk", Kind::kInt32, AT(mask.chunk)},
    {"window_left", Kind::kInt64, AT(mask.window_left), TILEWISE_MASK_WINDOW, kMaskFlags},
    {"window_right", Kind::kInt64, AT(mask.window_right), TILEWISE_MASK_WINDOW, kMaskFlags},
    {"prefix", Kind::kInt64, AT(mask.prefix)},
    {"block", Kind::kInt64, AT(mask.block)},
    tensor("prefix_lens", AT(mask.prefix_lens)),
    tensor("mask", AT(mask.mask)),
    tensor("key_begin", AT(mask.key_begin)),
    tensor("key_end", AT(mask.key_end)),
    {"softmax_scale", Kind::kFloat, AT(score.softmax_scale), TILEWISE_SCORE_HAS_SCALE, kScoreFlags},
    {"softcap", Kind::kFloat, AT(score.softcap)},
    {"dropout_p", Kind::kFloat, AT(score.dropout_p)},
    {"dropout_seed", Kind::kUint64, AT(score.dropout_seed)},
    {"dropout_offset", Kind::kUint64, AT(score.dropout_offset)},
    tensor("alibi_slopes", AT(score.alibi_slopes)),
    tensor("bias", AT(score.bias)),
    tensor("sink", AT(score.sink)),
    tensor("cache_seqlens", AT(cache.cache_seqlens)),
    tensor("cache_batch_idx", AT(cache.cache_batch_idx)),
    tensor("page_table", AT(cache.page_table)),
    tensor("k_new", AT(cache.k_new)),
    tensor("v_new", AT(cache.v_new)),
    tensor("cu_seqlens_k_new", AT(cache.cu_seqlens_k_new)),
    tensor("rotary_cos", AT(cache.rotary_cos)),
    tensor("rotary_sin", AT(cache.rotary_sin)),
    tensor("rotary_seqlens", AT(cache.rotary_seqlens)),
    {"rotary_interleaved", Kind::kFlag, 0, 1, AT(cache.rotary_interleaved)},
    tensor("error_flag", AT(cache.error_flag), kAppends),
    tensor("grad_o", AT(gradients.grad_o)),
    tensor("grad_lse", AT(gradients.grad_lse)),
    tensor("grad_q", AT(gradients.grad_q), kBackward),
    tensor("grad_k", AT(gradients.grad_k), kBackward),
    tensor("grad_v", AT(gradients.grad_v), kBackward),
    tensor("grad_bias", AT(gradients.grad_bias), kBackward),
    tensor("grad_sink", AT(gradients.grad_sink), kBackward),
    {"deterministic", Kind::kFlag, 0, TILEWISE_DETERMINISTIC, kOptionFlags},
    {"batch_invariant", Kind::kFlag, 0, TILEWISE_BATCH_INVARIANT, kOptionFlags},
    {"num_splits", Kind::kInt32, AT(options.num_splits)},
    {"num_threads", Kind::kInt32, AT(options.num_threads)},
    {"kernel", Kind::kKernel, AT(options.kernel)},
};
const size_t kNumAttentionFields = std::size(kAttentionFields);
#undef AT

#define AT(member) offsetof(tilewise_combination, member)
const Field kCombinationFields[] = {
    tensor("partial_o", AT(partial_o)),
    tensor("partial_lse", AT(partial_lse)),
    tensor("o", AT(o), bit(TILEWISE_COMBINE)),
    tensor("lse", AT(lse), bit(TILEWISE_COMBINE)),
    {"num_threads", Kind::kInt32, AT(options.num_threads)},
    {"kernel", Kind::kKernel, AT(options.kernel)},
};
const size_t kNumCombinationFields = std::size(kCombinationFields);
#undef AT

}  // namespace tilewise::python
