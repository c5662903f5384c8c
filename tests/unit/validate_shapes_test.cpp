// Rules of validate on tensors: arguments that belong together or exclude each other, types, shapes.
// The sizes of the samples stand in sample_problems.hpp.
#include "rule_case.hpp"

namespace tilewise {
namespace {

using samples::append;
using samples::backward;
using samples::combine;
using samples::decode;
using samples::forward;
using samples::full_forward;
using samples::paged_forward;
using samples::ragged_backward;
using samples::ragged_combine;
using samples::ragged_forward;

const RuleCase kArgumentRules[] = {
    {"missing_hint", forward, [](Problem& p) { p[Arg::kQ] = {}; }, {"q: is not given; forward needs it"}},
    {"decode_seqused",
     decode,
     [](Problem& p) { p[Arg::kSequsedK] = i32({3}); },
     {"seqused_k: i32 (3) has no effect on decode", "allowed for forward, backward", "cache_seqlens"}},
    {"backward_paged",
     backward,
     [](Problem& p) {
         p[Arg::kPageTable] = i32({3, 5});
     },
     {"page_table: i32 (3, 5) has no effect on backward", "gather its pages"}},
    {"forward_gradient",
     forward,
     [](Problem& p) { p[Arg::kGradQ] = p[Arg::kQ]; },
     {"grad_q: bf16 (3, 5, 6, 8) has no effect on forward; allowed for backward"}},
    {"internal",
     append,
     [](Problem& p) { p[Arg::kQRotated] = f32({1}); },
     {"q_rotated: f32 (1) has no effect on append", "library's own"}},
    {"k_new_alone",
     decode,
     [](Problem& p) { p[Arg::kVNew] = {}; },
     {"k_new: bf16 (3, 2, 2, 8) is given without v_new"}},
    {"v_new_alone",
     decode,
     [](Problem& p) { p[Arg::kKNew] = {}; },
     {"v_new: bf16 (3, 2, 2, 10) is given without k_new"}},
    {"new_without_lengths",
     decode,
     [](Problem& p) { p[Arg::kCacheSeqlens] = {}; },
     {"k_new: ", "without cache_seqlens"}},
    {"cu_new_alone",
     forward,
     [](Problem& p) {
         p.op = Op::kDecode;
         p[Arg::kCuSeqlensKNew] = i32({4});
     },
     {"cu_seqlens_k_new: i32 (4) is given without k_new"}},
    {"cos_alone",
     decode,
     [](Problem& p) { p[Arg::kRotarySin] = {}; },
     {"rotary_cos: f32 (16, 3) is given without rotary_sin"}},
    {"sin_alone",
     decode,
     [](Problem& p) { p[Arg::kRotaryCos] = {}; },
     {"rotary_sin: f32 (16, 3) is given without rotary_cos"}},
    {"rotary_without_new",
     decode,
     [](Problem& p) { p[Arg::kKNew] = p[Arg::kVNew] = {}; },
     {"rotary_cos: ", "without k_new"}},
    {"positions_alone",
     decode,
     [](Problem& p) { p[Arg::kRotaryCos] = p[Arg::kRotarySin] = {}; },
     {"rotary_seqlens: i32 (3) is given without rotary_cos"}},
    {"grad_bias_alone", backward, [](Problem& p) { p[Arg::kBias] = {}; }, {"grad_bias: ", "without bias"}},
    {"grad_sink_alone", backward, [](Problem& p) { p[Arg::kSink] = {}; }, {"grad_sink: f32 (6) is given without sink"}},
    {"pages_and_ragged",
     ragged_forward,
     [](Problem& p) {
         p[Arg::kPageTable] = i32({3, 5});
     },
     {"page_table: i32 (3, 5) is given with cu_seqlens_k", "seqused_k"}},
    {"leftpad_and_ragged",
     ragged_forward,
     [](Problem& p) { p[Arg::kLeftpadK] = i32({3}); },
     {"leftpad_k: i32 (3) is given with cu_seqlens_k"}},
    {"rows_and_ragged",
     ragged_forward,
     [](Problem& p) { p[Arg::kCacheBatchIdx] = i32({3}); },
     {"cache_batch_idx: i32 (3) is given with cu_seqlens_k"}},
};

const RuleCase kTypeRules[] = {
    {"odd_q",
     forward,
     [](Problem& p) { p[Arg::kQ].dtype = DType::kF32; },
     {"q: the dtype is f32, but that of k and v is bf16"}},
    {"odd_k",
     forward,
     [](Problem& p) { p[Arg::kK].dtype = DType::kF16; },
     {"k: the dtype is f16, but that of q and v is bf16"}},
    {"odd_v",
     forward,
     [](Problem& p) { p[Arg::kV].dtype = DType::kF64; },
     {"v: the dtype is f64, but that of q and k is bf16"}},
    {"all_differ",
     forward,
     [](Problem& p) {
         p[Arg::kK].dtype = DType::kF16;
         p[Arg::kV].dtype = DType::kF32;
     },
     {"k: the dtype is f16, but that of q is bf16"}},
    {"odd_cache",
     append,
     [](Problem& p) { p[Arg::kV].dtype = DType::kF16; },
     {"k: the dtype is bf16, but that of v is f16"}},
    {"unknown", forward, [](Problem& p) { p[Arg::kLse].dtype = DType{99}; }, {"lse: dtype 99 is unknown"}},
    {"output",
     forward,
     [](Problem& p) { p[Arg::kO].dtype = DType::kF32; },
     {"o: the dtype is f32; bf16, that of q, is allowed"}},
    {"lse_f64",
     forward,
     [](Problem& p) { p[Arg::kLse].dtype = DType::kF64; },
     {"lse: the dtype is f64; f32 is allowed"}},
    {"gradient",
     backward,
     [](Problem& p) { p[Arg::kGradK].dtype = DType::kF32; },
     {"grad_k: the dtype is f32; bf16, that of k"}},
    {"grad_bias_type",
     backward,
     [](Problem& p) {
         p[Arg::kBias].dtype = DType::kF16;
         p[Arg::kGradBias].dtype = DType::kBF16;
     },
     {"grad_bias: the dtype is bf16; f32 or f16 is allowed"}},
    {"mask_type",
     full_forward,
     [](Problem& p) { p[Arg::kMask].dtype = DType::kF32; },
     {"mask: the dtype is f32; bool or bits is allowed"}},
    {"tables_differ",
     append,
     [](Problem& p) { p[Arg::kRotarySin].dtype = DType::kBF16; },
     {"rotary_sin: the dtype is bf16; f32, that of rotary_cos"}},
    {"tables_type",
     append,
     [](Problem& p) { p[Arg::kRotaryCos].dtype = DType::kF16; },
     {"rotary_cos: the dtype is f16; f32 or bf16 is allowed"}},
    {"new_keys_type",
     append,
     [](Problem& p) { p[Arg::kKNew].dtype = DType::kF16; },
     {"k_new: the dtype is f16; bf16, that of k"}},
    {"parts_type",
     combine,
     [](Problem& p) { p[Arg::kPartialO].dtype = DType::kF64; },
     {"partial_o: the dtype is f64; f32, f16 or bf16 is allowed"}},
    {"merged_type",
     combine,
     [](Problem& p) { p[Arg::kO].dtype = DType::kF64; },
     {"o: the dtype is f64; f32, f16 or bf16 is allowed"}},
};

const RuleCase kShapeRules[] = {
    {"q_of_three_axes",
     forward,
     [](Problem& p) {
         p[Arg::kQ] = bf16({15, 6, 8});
     },
     {"q: bf16 (15, 6, 8) has 3 axes; (batch, seqlen_q, num_heads_q, head_dim) or (total_q, num_heads_q, head_dim) "
      "with cu_seqlens_q"}},
    {"k_against_q",
     forward,
     [](Problem& p) {
         p[Arg::kK] = bf16({4, 7, 2, 8});
     },
     {"k: batch is 4 in bf16 (4, 7, 2, 8), but 3 by q, bf16 (3, 5, 6, 8); k is (batch, seqlen_k, num_heads_kv, "
      "head_dim)"}},
    {"k_head_dim",
     forward,
     [](Problem& p) {
         p[Arg::kK] = bf16({3, 7, 2, 9});
     },
     {"k: head_dim is 9", "but 8 by q"}},
    {"v_rows",
     forward,
     [](Problem& p) {
         p[Arg::kV] = bf16({3, 6, 2, 10});
     },
     {"v: seqlen_k is 6", "but 7 by k"}},
    {"v_heads",
     forward,
     [](Problem& p) {
         p[Arg::kV] = bf16({3, 7, 3, 10});
     },
     {"v: num_heads_kv is 3", "but 2 by k"}},
    {"o_dims",
     forward,
     [](Problem& p) {
         p[Arg::kO] = bf16({3, 5, 6, 8});
     },
     {"o: head_dim_v is 8", "but 10 by v"}},
    {"lse_order",
     forward,
     [](Problem& p) {
         p[Arg::kLse] = f32({3, 5, 6});
     },
     {"lse: num_heads_q is 5 in f32 (3, 5, 6), but 6 by q"}},
    {"ragged_batches",
     ragged_forward,
     [](Problem& p) { p[Arg::kCuSeqlensK] = i32({5}); },
     {"cu_seqlens_k: batch + 1 is 5", "but 4 by cu_seqlens_q"}},
    {"no_cu_seqlens",
     ragged_forward,
     [](Problem& p) { p[Arg::kCuSeqlensQ] = i32({0}); },
     {"cu_seqlens_q: i32 (0) is empty"}},
    {"ragged_lse",
     ragged_forward,
     [](Problem& p) {
         p[Arg::kLse] = f32({9, 6});
     },
     {"lse: num_heads_q is 9", "but 6 by q"}},
    {"cache_of_other_batch", decode, [](Problem& p) { p[Arg::kCacheBatchIdx] = {}; }, {"k: batch is 4", "but 3 by q"}},
    {"pages_of_v",
     paged_forward,
     [](Problem& p) {
         p[Arg::kV] = bf16({12, 4, 2, 10});
     },
     {"v: num_pages is 12", "but 13 by k"}},
    {"grad_ragged",
     ragged_backward,
     [](Problem& p) {
         p[Arg::kGradV] = bf16({12, 2, 10});
     },
     {"grad_v: total_k is 12", "but 11 by k"}},
    {"slopes",
     full_forward,
     [](Problem& p) { p[Arg::kAlibiSlopes] = f32({2}); },
     {"alibi_slopes: num_heads_q is 2", "but 6 by q"}},
    {"slopes_rank",
     full_forward,
     [](Problem& p) {
         p[Arg::kAlibiSlopes] = f32({1, 3, 6});
     },
     {"alibi_slopes: f32 (1, 3, 6) has 3 axes; (num_heads_q) or (batch, num_heads_q) is allowed"}},
    {"ragged_parts",
     ragged_combine,
     [](Problem& p) {
         p[Arg::kO] = bf16({8, 6, 10});
     },
     {"o: total_q is 8", "but 9 by partial_o"}},
    {"parts",
     combine,
     [](Problem& p) {
         p[Arg::kPartialLse] = f32({5, 3, 6, 5});
     },
     {"partial_lse: num_splits is 5", "but 4 by partial_o"}},
    {"exchanged_axes",
     forward,
     [](Problem& p) {
         p[Arg::kO] = bf16({3, 6, 5, 10});
     },
     {"o: seqlen_q is 6", "did you pass (batch, heads, length, dim)?"}},
    {"exchanged_cache",
     forward,
     [](Problem& p) {
         p[Arg::kK] = bf16({3, 2, 100, 8});
         p[Arg::kV] = bf16({3, 2, 100, 10});
     },
     {"k: num_heads_kv is 100 and num_heads_q is 6", "did you pass (batch, heads, length, dim)?"}},
    {"exchanged_v",
     forward,
     [](Problem& p) {
         p[Arg::kK] = bf16({3, 2, 100, 8});
         p[Arg::kV] = bf16({3, 2, 99, 8});
     },
     {"v: num_heads_kv is 99", "did you pass (batch, heads, length, dim)?"}},
    {"no_head_dim",
     forward,
     [](Problem& p) {
         p[Arg::kQ] = bf16({3, 5, 6, 0});
         p[Arg::kK] = bf16({3, 7, 2, 0});
     },
     {"q: head_dim is 0; 1 to 256 is allowed"}},
    {"large_head_dim",
     append,
     [](Problem& p) {
         p[Arg::kK] = bf16({4, 7, 2, 257});
         p[Arg::kKNew] = bf16({3, 2, 2, 257});
     },
     {"k: head_dim is 257; 1 to 256 is allowed"}},
    {"large_head_dim_v",
     forward,
     [](Problem& p) {
         p[Arg::kV] = bf16({3, 7, 2, 513});
         p[Arg::kO] = bf16({3, 5, 6, 513});
     },
     {"v: head_dim_v is 513; 1 to 512 is allowed"}},
    {"large_parts",
     combine,
     [](Problem& p) {
         p[Arg::kPartialO] = f32({4, 3, 5, 6, 600});
         p[Arg::kO] = bf16({3, 5, 6, 600});
     },
     {"partial_o: head_dim_v is 600; 1 to 512 is allowed"}},
    {"head_counts",
     forward,
     [](Problem& p) {
         p[Arg::kK] = bf16({3, 7, 4, 8});
         p[Arg::kV] = bf16({3, 7, 4, 10});
     },
     {"k: num_heads_kv is 4 and num_heads_q is 6; num_heads_q is a multiple"}},
    {"no_kv_heads",
     forward,
     [](Problem& p) {
         p[Arg::kK] = bf16({3, 7, 0, 8});
         p[Arg::kV] = bf16({3, 7, 0, 10});
     },
     {"k: num_heads_kv is 0 and num_heads_q is 6"}},
};

TEST_P(RuleTest, NamesTheArgumentAndItsValue) {
    Problem p = GetParam().make();
    GetParam().change(p);
    expect_refused(validate(p), GetParam().expected);
}
INSTANTIATE_TEST_SUITE_P(Arguments, RuleTest, testing::ValuesIn(kArgumentRules), name_of_case);
INSTANTIATE_TEST_SUITE_P(Types, RuleTest, testing::ValuesIn(kTypeRules), name_of_case);
INSTANTIATE_TEST_SUITE_P(Shapes, RuleTest, testing::ValuesIn(kShapeRules), name_of_case);

}  // namespace
}  // namespace tilewise
