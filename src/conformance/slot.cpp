// Where each slot lies in a tilewise::Attention, and its name.
#include "conformance/slot.hpp"

#include <iterator>

namespace tilewise::conformance {

namespace {

struct SlotRow {
    Slot slot;
    const char* name;
    Tensor& (*tensor)(Attention&);
};

#define TILEWISE_SLOT(slot_, name_, member_)                                   \
    SlotRow {                                                                  \
        Slot::slot_, #name_, [](Attention& a) -> Tensor& { return a.member_; } \
    }
const SlotRow kRows[] = {
    TILEWISE_SLOT(kQ, q, q),
    TILEWISE_SLOT(kK, k, k),
    TILEWISE_SLOT(kV, v, v),
    TILEWISE_SLOT(kO, o, o),
    TILEWISE_SLOT(kLse, lse, lse),
    TILEWISE_SLOT(kCuSeqlensQ, cu_seqlens_q, lengths.cu_seqlens_q),
    TILEWISE_SLOT(kCuSeqlensK, cu_seqlens_k, lengths.cu_seqlens_k),
    TILEWISE_SLOT(kSequsedQ, seqused_q, lengths.seqused_q),
    TILEWISE_SLOT(kSequsedK, seqused_k, lengths.seqused_k),
    TILEWISE_SLOT(kLeftpadK, leftpad_k, lengths.leftpad_k),
    TILEWISE_SLOT(kPrefixLens, prefix_lens, mask.prefix_lens),
    TILEWISE_SLOT(kMask, mask, mask.mask),
    TILEWISE_SLOT(kKeyBegin, key_begin, mask.key_begin),
    TILEWISE_SLOT(kKeyEnd, key_end, mask.key_end),
    TILEWISE_SLOT(kAlibiSlopes, alibi_slopes, score.alibi_slopes),
    TILEWISE_SLOT(kBias, bias, score.bias),
    TILEWISE_SLOT(kSink, sink, score.sink),
    TILEWISE_SLOT(kCacheSeqlens, cache_seqlens, cache.cache_seqlens),
    TILEWISE_SLOT(kCacheBatchIdx, cache_batch_idx, cache.cache_batch_idx),
    TILEWISE_SLOT(kPageTable, page_table, cache.page_table),
    TILEWISE_SLOT(kKNew, k_new, cache.k_new),
    TILEWISE_SLOT(kVNew, v_new, cache.v_new),
    TILEWISE_SLOT(kCuSeqlensKNew, cu_seqlens_k_new, cache.cu_seqlens_k_new),
    TILEWISE_SLOT(kRotaryCos, rotary_cos, cache.rotary_cos),
    TILEWISE_SLOT(kRotarySin, rotary_sin, cache.rotary_sin),
    TILEWISE_SLOT(kRotarySeqlens, rotary_seqlens, cache.rotary_seqlens),
    TILEWISE_SLOT(kGradO, grad_o, gradients.grad_o),
    TILEWISE_SLOT(kGradLse, grad_lse, gradients.grad_lse),
    TILEWISE_SLOT(kGradQ, grad_q, gradients.grad_q),
    TILEWISE_SLOT(kGradK, grad_k, gradients.grad_k),
    TILEWISE_SLOT(kGradV, grad_v, gradients.grad_v),
    TILEWISE_SLOT(kGradBias, grad_bias, gradients.grad_bias),
    TILEWISE_SLOT(kGradSink, grad_sink, gradients.grad_sink),
};
#undef TILEWISE_SLOT
static_assert(std::size(kRows) == static_cast<size_t>(Slot::kCount), "every slot has a row, in order");

}  // namespace

const char* name_of(Slot slot) { return kRows[static_cast<size_t>(slot)].name; }
Tensor& tensor_of(Attention& attention, Slot slot) { return kRows[static_cast<size_t>(slot)].tensor(attention); }

}  // namespace tilewise::conformance
