// Rules of validate on limits of lengths, the cache with its new keys and rotary tables, and masks and biases.
// The sizes of the samples stand in sample_problems.hpp.
#include <cstdint>

#include "rule_case.hpp"

namespace tilewise {
namespace {

using samples::append;
using samples::backward;
using samples::combine;
using samples::decode;
using samples::forward;
using samples::full_forward;
using samples::paged_decode;
using samples::paged_forward;
using samples::ragged_forward;

constexpr int64_t kTooLong = int64_t{kMaxSeqlen} + 1;

const RuleCase kLengthRules[] = {
    {"many_elements",
     forward,
     [](Problem& p) {
         p[Arg::kQ] = broadcast(DType::kBF16, {int64_t{1} << 47, 5, 6, 8});
     },
     {"q: bf16 (140737488355328, 5, 6, 8)", "2^48"}},
    {"many_elements_of_nothing",
     forward,
     [](Problem& p) {
         p[Arg::kQ] = broadcast(DType::kBF16, {0, int64_t{1} << 60, 6, 8});
     },
     {"q: bf16 (0, 1152921504606846976, 6, 8)", "2^48"}},
    {"many_sequences",
     append,
     [](Problem& p) {
         const int64_t batch = int64_t{1} << 31;
         for (const Arg arg : {Arg::kCacheSeqlens, Arg::kCacheBatchIdx, Arg::kRotarySeqlens})
             p[arg] = broadcast(DType::kI32, {batch});
         p[Arg::kKNew] = broadcast(DType::kBF16, {batch, 2, 2, 8});
         p[Arg::kVNew] = broadcast(DType::kBF16, {batch, 2, 2, 10});
     },
     {"cache_seqlens: i32 (2147483648)", "2147483647"}},
    {"error_flags",
     append,
     [](Problem& p) { p[Arg::kErrorFlag] = contiguous(DType::kI32, {3}); },
     {"error_flag: the shape is that of i32 (3); one element, (1), is allowed"}},
    {"scalar_error_flag",
     append,
     [](Problem& p) { p[Arg::kErrorFlag] = contiguous(DType::kI32, {}); },
     {"error_flag: the shape is that of i32 ()"}},
    {"wide_error_flag",
     append,
     [](Problem& p) { p[Arg::kErrorFlag] = contiguous(DType::kI64, {1}); },
     {"error_flag: the dtype is i64; i32 is allowed"}},
    {"error_flag_without_new_keys",
     decode,
     [](Problem& p) {
         for (const Arg arg : {Arg::kKNew, Arg::kVNew, Arg::kRotaryCos, Arg::kRotarySin, Arg::kRotarySeqlens}) p[arg] = {};
         p[Arg::kErrorFlag] = contiguous(DType::kI32, {1});
     },
     {"error_flag: i32 (1) is given without k_new; it is raised where keys enter the cache"}},
    {"long_queries",
     forward,
     [](Problem& p) {
         p[Arg::kQ] = broadcast(DType::kBF16, {3, kTooLong, 6, 8});
         p[Arg::kO] = bf16({3, kTooLong, 6, 10});
         p[Arg::kLse] = f32({3, 6, kTooLong});
     },
     {"q: ", "sequences of up to 1073741824 rows; at most 1073741823"}},
    {"long_keys",
     forward,
     [](Problem& p) {
         p[Arg::kK] = broadcast(DType::kBF16, {3, kTooLong, 2, 8});
         p[Arg::kV] = broadcast(DType::kBF16, {3, kTooLong, 2, 10});
     },
     {"k: ", "sequences of up to 1073741824 rows"}},
    {"long_ragged_keys",
     ragged_forward,
     [](Problem& p) {
         p[Arg::kK] = broadcast(DType::kBF16, {kTooLong, 2, 8});
         p[Arg::kV] = broadcast(DType::kBF16, {kTooLong, 2, 10});
     },
     {"k: ", "up to 1073741824 rows", "say so with max_seqlen_k"}},
    {"no_page_rows",
     paged_forward,
     [](Problem& p) {
         p[Arg::kK] = bf16({13, 0, 2, 8});
         p[Arg::kV] = bf16({13, 0, 2, 10});
     },
     {"k: page_size is 0"}},
    {"long_pages",
     paged_forward,
     [](Problem& p) {
         p[Arg::kPageTable] = broadcast(DType::kI32, {3, int64_t{1} << 40});
     },
     {"page_table: 1099511627776 pages of 4 rows are more keys than 1073741823"}},
    {"negative_bound_q",
     ragged_forward,
     [](Problem& p) { p.exec.max_seqlen_q = -1; },
     {"max_seqlen_q: -1 is negative"}},
    {"negative_bound_k",
     ragged_forward,
     [](Problem& p) { p.exec.max_seqlen_k = -2; },
     {"max_seqlen_k: -2 is negative"}},
    {"bound_of_dense_q",
     forward,
     [](Problem& p) { p.exec.max_seqlen_q = 5; },
     {"max_seqlen_q: 5 has no effect without cu_seqlens_q"}},
    {"bound_of_pages",
     paged_forward,
     [](Problem& p) { p.exec.max_seqlen_k = 20; },
     {"max_seqlen_k: 20 has no effect without cu_seqlens_k"}},
    {"bound_of_parts", combine, [](Problem& p) { p.exec.max_seqlen_q = 5; }, {"max_seqlen_q: 5 has no effect"}},
};

const RuleCase kCacheRules[] = {
    {"few_table_rows",
     paged_forward,
     [](Problem& p) {
         p[Arg::kPageTable] = i32({2, 5});
     },
     {"page_table: i32 (2, 5) has 2 rows, but there are 3 sequences", "cache_batch_idx"}},
    {"many_new_keys",
     append,
     [](Problem& p) {
         p[Arg::kKNew] = bf16({3, 8, 2, 8});
         p[Arg::kVNew] = bf16({3, 8, 2, 10});
     },
     {"k_new: 8 new rows do not fit a cache of 7 rows"}},
    {"many_new_paged_keys",
     paged_decode,
     [](Problem& p) {
         p[Arg::kKNew] = bf16({3, 21, 2, 8});
         p[Arg::kVNew] = bf16({3, 21, 2, 10});
     },
     {"k_new: 21 new rows do not fit a cache of 20 rows"}},
    {"short_tables",
     append,
     [](Problem& p) {
         p[Arg::kRotaryCos] = p[Arg::kRotarySin] = f32({1, 3});
     },
     {"rotary_cos: 1 positions are fewer than the 2 rows of k_new"}},
    {"wide_tables",
     append,
     [](Problem& p) {
         p[Arg::kRotaryCos] = p[Arg::kRotarySin] = f32({16, 5});
     },
     {"rotary_cos: rotary_dim is 10", "head_dim, 8"}},
    {"empty_tables",
     append,
     [](Problem& p) {
         p[Arg::kRotaryCos] = p[Arg::kRotarySin] = f32({16, 0});
     },
     {"rotary_cos: rotary_dim is 0"}},
};

const RuleCase kPairRules[] = {
    {"mask_rank",
     full_forward,
     [](Problem& p) {
         p[Arg::kMask] = contiguous(DType::kBool, {5, 7});
     },
     {"mask: bool (5, 7) has 2 axes; (batch, num_heads_q, seqlen_q, seqlen_k)"}},
    {"mask_batch",
     full_forward,
     [](Problem& p) {
         p[Arg::kMask] = contiguous(DType::kBool, {2, 6, 5, 7});
     },
     {"mask: axis 0 (batch) is 2 in bool (2, 6, 5, 7); 1 or 3 is allowed"}},
    {"mask_kv_heads",
     full_forward,
     [](Problem& p) {
         p[Arg::kMask] = contiguous(DType::kBool, {3, 2, 5, 7});
     },
     {"mask: axis 1 (num_heads_q) is 2", "1 or 6"}},
    {"bias_rows",
     full_forward,
     [](Problem& p) {
         p[Arg::kBias] = f32({1, 1, 4, 7});
     },
     {"bias: axis 2 (seqlen_q) is 4", "1 or 5"}},
    {"bias_keys",
     full_forward,
     [](Problem& p) {
         p[Arg::kBias] = f32({1, 1, 5, 8});
     },
     {"bias: axis 3 (seqlen_k) is 8", "1 or 7"}},
    {"bits",
     forward,
     [](Problem& p) {
         p[Arg::kMask] = contiguous(DType::kBits, {3, 6, 5, 7});
     },
     {"mask: axis 3 (bytes of seqlen_k) is 7 in bits (3, 6, 5, 7); 1 is allowed"}},
    {"broadcast_bits",
     paged_forward,
     [](Problem& p) {
         p[Arg::kMask] = contiguous(DType::kBits, {1, 1, 1, 1});
     },
     {"mask: axis 3 (bytes of seqlen_k) is 1", "; 3 is allowed"}},
    {"ragged_mask_rows",
     ragged_forward,
     [](Problem& p) {
         p.exec.max_seqlen_q = 4;
         p[Arg::kMask] = contiguous(DType::kBool, {3, 6, 3, 11});
     },
     {"mask: axis 2 (max_seqlen_q) is 3", "1 or at least 4"}},
    {"ragged_mask_keys",
     ragged_forward,
     [](Problem& p) {
         p[Arg::kMask] = contiguous(DType::kBool, {3, 6, 9, 10});
     },
     {"mask: axis 3 (max_seqlen_k) is 10", "1 or at least 11"}},
    {"grad_bias_shape",
     backward,
     [](Problem& p) {
         p[Arg::kBias] = f32({1, 6, 5, 7});
     },
     {"grad_bias: the shape is that of f32 (3, 6, 5, 7)", "f32 (1, 6, 5, 7)"}},
    {"interleaved_output",
     forward,
     [](Problem& p) {
         p[Arg::kO].stride = {300, 60, 9, 1};
     },
     {"o: stride 9 of axis 2 (size 6)", "overlap"}},
};

TEST_P(RuleTest, NamesTheArgumentAndItsValue) {
    Problem p = GetParam().make();
    GetParam().change(p);
    expect_refused(validate(p), GetParam().expected);
}
INSTANTIATE_TEST_SUITE_P(Lengths, RuleTest, testing::ValuesIn(kLengthRules), name_of_case);
INSTANTIATE_TEST_SUITE_P(Cache, RuleTest, testing::ValuesIn(kCacheRules), name_of_case);
INSTANTIATE_TEST_SUITE_P(Pairs, RuleTest, testing::ValuesIn(kPairRules), name_of_case);

}  // namespace
}  // namespace tilewise
