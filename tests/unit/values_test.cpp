// check_pointers and check_values: each rule on real arrays, with the name of the argument and its value in the message.
// A Call owns the integers of a sample problem; data tensors share one zeroed buffer, which neither check reads.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/validate.hpp"
#include "rule_case.hpp"
#include "sample_problems.hpp"

namespace tilewise {
namespace {

struct Call {
    Problem problem;
    std::map<Arg, std::vector<int32_t>> ints;

    Arguments arguments() {
        alignas(16) static unsigned char data[1 << 14] = {};
        Arguments result;
        for (size_t i = 0; i < kNumArgs; ++i) {
            const Arg arg = static_cast<Arg>(i);
            if (problem.has(arg))
                result.pointers[arg] = ints.contains(arg) ? static_cast<void*>(ints[arg].data()) : data;
        }
        return result;
    }
    Status check() { return check_values(problem, arguments()); }
};

// Ragged rows 2, 0, 6 of q (9 rows) and 4, 3, 4 of k (11 rows).
Call ragged() {
    Call call{samples::ragged_forward(), {}};
    call.ints[Arg::kCuSeqlensQ] = {0, 2, 2, 8};
    call.ints[Arg::kCuSeqlensK] = {0, 4, 7, 11};
    return call;
}

// 5, 20 and 0 keys in 13 pages of 4; -1 and 99 stand where no sequence has keys.
Call paged() {
    Call call{samples::paged_forward(), {}};
    call.ints[Arg::kSequsedK] = {5, 20, 0};
    call.ints[Arg::kPageTable] = {12, 3, -1, 99, -1, 0, 1, 2, 4, 5, -1, -1, -1, -1, -1};
    return call;
}

// Every optional length of a dense forward; prefix_lens needs causal.
Call full() {
    Call call{samples::full_forward(), {}};
    call.ints[Arg::kSequsedQ] = {5, 0, 3};
    call.ints[Arg::kSequsedK] = {7, 0, 4};
    call.ints[Arg::kLeftpadK] = {0, 0, 4};
    call.ints[Arg::kPrefixLens] = {0, 100, 2};
    call.ints[Arg::kKeyBegin] = call.ints[Arg::kKeyEnd] = std::vector<int32_t>(15, -7);
    return call;
}

// A cache of 4 rows of 7 keys, 2 new ones; rotary tables of 16 positions.
void fill_cache(Call& call) {
    call.ints[Arg::kCacheSeqlens] = {5, 0, 3};
    call.ints[Arg::kCacheBatchIdx] = {3, 0, 2};
    call.ints[Arg::kRotarySeqlens] = {14, 0, 3};
}
Call append() {
    Call call{samples::append(), {}};
    fill_cache(call);
    return call;
}
// seqlen_q is 5, but without a positional mask all queries stand at the first new position.
Call decode() {
    Call call{samples::decode(), {}};
    fill_cache(call);
    call.ints[Arg::kLeftpadK] = {5, 0, 1};
    return call;
}
// 13 pages of 4 rows: row 3 of the table holds 7 keys after the append, row 0 two, row 2 five of which four are padding.
Call paged_decode() {
    Call call{samples::paged_decode(), {}};
    fill_cache(call);
    call.ints[Arg::kLeftpadK] = {1, 0, 3};
    call.ints[Arg::kPageTable] = {0, -1, -1, -1, -1, -9, -9, -9, -9, -9, 1, 2, -1, -1, -1, 3, 4, -1, -1, -1};
    return call;
}
Call paged_append() {
    Call call = paged_decode();
    for (const Arg arg : {Arg::kQ, Arg::kO, Arg::kLse, Arg::kLeftpadK}) call.problem[arg] = {};
    call.problem.op = Op::kAppend;
    return call;
}

TEST(Values, RightValuesPass) {
    for (Call call : {ragged(), paged(), full(), append(), decode(), paged_decode(), paged_append(),
                      Call{samples::forward(), {}}, Call{samples::combine(), {}}}) {
        ASSERT_TRUE(validate(call.problem).ok()) << validate(call.problem).message();
        EXPECT_TRUE(check_pointers(call.problem, call.arguments()).ok());
        EXPECT_TRUE(call.check().ok()) << call.check().message();
    }
}

struct ValueCase {
    const char* name;
    Call (*make)();
    void (*change)(Call&);
    std::vector<std::string> expected;
};
void PrintTo(const ValueCase& rule, std::ostream* out) { *out << rule.name; }

const ValueCase kValueRules[] = {
    {"cu_start", ragged, [](Call& c) { c.ints[Arg::kCuSeqlensQ][0] = 1; }, {"cu_seqlens_q: [0] is 1; 0 is allowed"}},
    {"cu_decreases",
     ragged,
     [](Call& c) { c.ints[Arg::kCuSeqlensK][2] = 3; },
     {"cu_seqlens_k: [2] is 3 after 4", "never decrease"}},
    {"cu_negative",
     ragged,
     [](Call& c) {
         c.ints[Arg::kCuSeqlensK] = {0, -5, 0, 0};
     },
     {"cu_seqlens_k: [1] is -5 after 0"}},
    // R062: cu_seqlens that claim more rows than the tensor has.
    {"cu_overruns",
     ragged,
     [](Call& c) { c.ints[Arg::kCuSeqlensQ][3] = 10; },
     {"cu_seqlens_q: [3] is 10, but the tensor has 9 rows"}},
    {"cu_wraps",
     ragged,
     [](Call& c) {
         c.ints[Arg::kCuSeqlensK] = {0, INT32_MAX, INT32_MAX, INT32_MAX};
     },
     {"cu_seqlens_k: [3] is 2147483647"}},
    {"bound_q",
     ragged,
     [](Call& c) { c.problem.exec.max_seqlen_q = 5; },
     {"max_seqlen_q: 5 is less than the 6 rows of sequence 2 in cu_seqlens_q"}},
    {"bound_k",
     ragged,
     [](Call& c) { c.problem.exec.max_seqlen_k = 3; },
     {"max_seqlen_k: 3 is less than the 4 rows of sequence 0"}},
    {"used_q", full, [](Call& c) { c.ints[Arg::kSequsedQ][1] = 6; }, {"seqused_q: [1] is 6; 0 to 5"}},
    {"used_q_negative", full, [](Call& c) { c.ints[Arg::kSequsedQ][2] = -1; }, {"seqused_q: [2] is -1; 0 to 5"}},
    {"used_q_ragged",
     ragged,
     [](Call& c) {
         c.problem[Arg::kSequsedQ] = i32({3});
         c.ints[Arg::kSequsedQ] = {2, 1, 6};
     },
     {"seqused_q: [1] is 1; 0 to 0"}},
    {"used_k", full, [](Call& c) { c.ints[Arg::kSequsedK][0] = 8; }, {"seqused_k: [0] is 8; 0 to 7"}},
    {"used_k_negative", full, [](Call& c) { c.ints[Arg::kSequsedK][0] = -3; }, {"seqused_k: [0] is -3; at least 0"}},
    {"used_k_ragged",
     ragged,
     [](Call& c) {
         c.problem[Arg::kSequsedK] = i32({3});
         c.ints[Arg::kSequsedK] = {4, 4, 4};
     },
     {"seqused_k: [1] is 4; 0 to 3"}},
    {"used_k_paged",
     paged,
     [](Call& c) { c.ints[Arg::kSequsedK][1] = 21; },
     {"page_table: 5 pages of 4 rows hold 20 keys, but seqused_k[1] is 21"}},
    {"used_cache",
     decode,
     [](Call& c) {
         for (const Arg arg : {Arg::kKNew, Arg::kVNew, Arg::kRotaryCos, Arg::kRotarySin, Arg::kRotarySeqlens})
             c.problem[arg] = {};
         c.ints[Arg::kCacheSeqlens][2] = 8;
     },
     {"cache_seqlens: [2] is 8; 0 to 7"}},
    {"leftpad", full, [](Call& c) { c.ints[Arg::kLeftpadK][2] = 5; }, {"leftpad_k: [2] is 5; 0 to 4"}},
    {"leftpad_negative", full, [](Call& c) { c.ints[Arg::kLeftpadK][0] = -1; }, {"leftpad_k: [0] is -1; 0 to 7"}},
    {"leftpad_cache", decode, [](Call& c) { c.ints[Arg::kLeftpadK][1] = 1; }, {"leftpad_k: [1] is 1; 0 to 0"}},
    {"prefix", full, [](Call& c) { c.ints[Arg::kPrefixLens][1] = -2; }, {"prefix_lens: [1] is -2; at least 0"}},
    {"page_id",
     paged,
     [](Call& c) { c.ints[Arg::kPageTable][1] = 13; },
     {"page_table: [0][1] is 13, but k has 13 pages; at least 0 and below"}},
    {"page_id_negative", paged, [](Call& c) { c.ints[Arg::kPageTable][9] = -1; }, {"page_table: [1][4] is -1"}},
    {"page_id_all_used", paged, [](Call& c) { c.problem[Arg::kSequsedK] = {}; }, {"page_table: [0][2] is -1"}},
    {"page_id_new",
     paged_append,
     [](Call& c) { c.ints[Arg::kPageTable][16] = 99; },
     {"page_table: [3][1] is 99, but k has 13 pages"}},
    {"page_id_old", paged_decode, [](Call& c) { c.ints[Arg::kPageTable][15] = 98; }, {"page_table: [3][0] is 98"}},
    {"cache_row",
     append,
     [](Call& c) { c.ints[Arg::kCacheBatchIdx][1] = 4; },
     {"cache_batch_idx: [1] is 4, but k has 4 rows; at least 0 and below"}},
    {"cache_row_negative",
     decode,
     [](Call& c) { c.ints[Arg::kCacheBatchIdx][0] = -1; },
     {"cache_batch_idx: [0] is -1"}},
    {"table_row",
     paged_decode,
     [](Call& c) { c.ints[Arg::kCacheBatchIdx][1] = 4; },
     {"cache_batch_idx: [1] is 4, but page_table has 4 rows"}},
    {"cache_row_twice",
     append,
     [](Call& c) { c.ints[Arg::kCacheBatchIdx][2] = 3; },
     {"cache_batch_idx: [0] and [2] are both 3"}},
    {"cache_negative",
     append,
     [](Call& c) { c.ints[Arg::kCacheSeqlens][0] = -1; },
     {"cache_seqlens: [0] is -1; at least 0"}},
    {"cache_full",
     append,
     [](Call& c) { c.ints[Arg::kCacheSeqlens][0] = 6; },
     {"cache_seqlens: [0] is 6 and k_new adds 2 rows; the cache holds 7"}},
    {"cache_wraps",
     append,
     [](Call& c) { c.ints[Arg::kCacheSeqlens][0] = INT32_MAX; },
     {"cache_seqlens: [0] is 2147483647"}},
    {"pages_full",
     paged_append,
     [](Call& c) { c.ints[Arg::kCacheSeqlens][2] = 19; },
     {"page_table: 5 pages of 4 rows hold 20 keys, but cache_seqlens[2] is 19 and k_new adds 2"}},
    {"new_overruns",
     append,
     [](Call& c) {
         c.problem[Arg::kKNew] = bf16({6, 2, 8});
         c.problem[Arg::kVNew] = bf16({6, 2, 10});
         c.problem[Arg::kCuSeqlensKNew] = i32({4});
         c.ints[Arg::kCuSeqlensKNew] = {0, 2, 4, 7};
     },
     {"cu_seqlens_k_new: [3] is 7, but the tensor has 6 rows"}},
    {"rotary_negative",
     append,
     [](Call& c) { c.ints[Arg::kRotarySeqlens][1] = -4; },
     {"rotary_seqlens: [1] is -4; at least 0"}},
    {"rotary_end",
     append,
     [](Call& c) { c.ints[Arg::kRotarySeqlens][0] = 15; },
     {"rotary_cos: 16 positions end before 16", "rotary_seqlens[0] is 15"}},
    {"rotary_queries",
     decode,
     [](Call& c) { c.problem.mask.window_right = 0; },
     {"rotary_cos: 16 positions end before 18", "sequence 0"}},
    {"rotary_cache",
     append,
     [](Call& c) {
         c.problem[Arg::kRotarySeqlens] = {};
         c.problem[Arg::kRotaryCos] = c.problem[Arg::kRotarySin] = f32({6, 3});
     },
     {"rotary_cos: 6 positions end before 6", "cache_seqlens[0] is 5"}},
};

class ValueRule : public testing::TestWithParam<ValueCase> {};
TEST_P(ValueRule, NamesTheArgumentAndItsValue) {
    Call call = GetParam().make();
    GetParam().change(call);
    ASSERT_TRUE(validate(call.problem).ok()) << validate(call.problem).message();
    expect_refused(call.check(), GetParam().expected);
}
INSTANTIATE_TEST_SUITE_P(Values, ValueRule, testing::ValuesIn(kValueRules),
                         [](const auto& rule) { return std::string(rule.param.name); });

TEST(Values, RowsCanRepeatWhereNothingIsWritten) {
    Call call = append();
    call.problem[Arg::kKNew] = bf16({4, 2, 8});
    call.problem[Arg::kVNew] = bf16({4, 2, 10});
    call.problem[Arg::kCuSeqlensKNew] = i32({4});
    call.ints[Arg::kCuSeqlensKNew] = {0, 2, 4, 4};
    call.ints[Arg::kCacheBatchIdx] = {3, 0, 3};
    EXPECT_TRUE(call.check().ok()) << call.check().message();
}

TEST(Values, StridedAndBroadcastIntegers) {
    Call call = full();
    call.problem[Arg::kSequsedK].stride[0] = 2;
    call.ints[Arg::kSequsedK] = {7, -1, 3, -1, 8};
    expect_refused(call.check(), {"seqused_k: [2] is 8"});
    call.problem[Arg::kSequsedK].stride[0] = 0;
    EXPECT_TRUE(call.check().ok()) << call.check().message();
    // Columns of the page table three apart.
    call = paged();
    call.problem[Arg::kPageTable].stride = {1, 3};
    call.ints[Arg::kPageTable] = {12, 0, -1, 3, 1, -1, -1, 2, -1, -1, 4, -1, -1, 77, -1};
    expect_refused(call.check(), {"page_table: [1][4] is 77"});
}

TEST(Values, AnEmptyBatchNeedsNoMemory) {
    Call call = full();
    for (size_t i = 0; i < kNumArgs; ++i) {
        const Arg arg = static_cast<Arg>(i);
        if (call.problem.has(arg) && arg != Arg::kSink) call.problem[arg] = samples::resized(call.problem[arg], 0, 0);
    }
    ASSERT_TRUE(validate(call.problem).ok()) << validate(call.problem).message();
    Arguments arguments;
    arguments.pointers[Arg::kSink] = call.arguments().pointers[Arg::kSink];
    EXPECT_TRUE(check_pointers(call.problem, arguments).ok()) << check_pointers(call.problem, arguments).message();
    EXPECT_TRUE(check_values(call.problem, arguments).ok());
}

TEST(Pointers, NullIsRefusedForEveryTensorWithElements) {
    for (const samples::Sample& sample : samples::kAll) {
        Call call{sample.make(), {}};
        for (size_t i = 0; i < kNumArgs; ++i) {
            const Arg arg = static_cast<Arg>(i);
            if (!call.problem.has(arg)) continue;
            Arguments arguments = call.arguments();
            EXPECT_TRUE(check_pointers(call.problem, arguments).ok());
            arguments.pointers[arg] = nullptr;
            expect_refused(check_pointers(call.problem, arguments),
                           {std::string(name_of(arg)) + ": the pointer is null", to_string(call.problem[arg])});
        }
    }
}

TEST(Pointers, ElementsAreAligned) {
    Call call = full();
    Arguments arguments = call.arguments();
    const auto move = [&](Arg arg, int bytes) {
        arguments = call.arguments();
        arguments.pointers[arg] = static_cast<unsigned char*>(arguments.pointers[arg]) + bytes;
        return check_pointers(call.problem, arguments);
    };
    expect_refused(move(Arg::kQ, 1), {"q: the address is aligned to 1 bytes; elements of bf16 need 2"});
    expect_refused(move(Arg::kBias, 2), {"bias: the address is aligned to 2 bytes; elements of f32 need 4"});
    expect_refused(move(Arg::kSequsedK, 2), {"seqused_k: the address is aligned to 2 bytes; elements of i32 need 4"});
    EXPECT_TRUE(move(Arg::kSequsedK, 4).ok());
}

TEST(Pointers, AddressesKeepThePlannedAlignment) {
    Call call = full();
    Arguments arguments = call.arguments();
    arguments.pointers[Arg::kQ] = static_cast<unsigned char*>(arguments.pointers[Arg::kQ]) + 4;
    expect_refused(check_pointers(call.problem, arguments),
                   {"q: the address is aligned to 4 bytes, but the plan was made for 16"});
    call.problem[Arg::kQ].alignment = 2;
    EXPECT_TRUE(check_pointers(call.problem, arguments).ok());
}

}  // namespace
}  // namespace tilewise
