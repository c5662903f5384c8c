// NaN in memory that a call must not read, NaN that it must hand on, and outputs that hold NaN before the call.
#include "call.hpp"

namespace reports {
namespace {

TEST_F(Reports, R034_nan_past_the_used_keys_never_reaches_the_output) {
    const Ints used = {32, 64, 96, 48};
    Call call(DType::kBF16, {.b = 4, .sk = 128, .h = 8, .hk = 8, .d = 64});
    for (std::size_t n = 0; n < 4; ++n)
        for (const Array& x : {call.k, call.v}) x.part(0, n, 1).part(1, used[n], 128 - used[n]).fill(kNaN);
    const Rules rules{.visible = [&](const Place& at) { return at.key < used[at.batch]; }};
    call.lengths.seqused_k = used;
    expect_forward(call, rules);
    call.lengths = {};
    call.cache.cache_seqlens = used;
    expect_decode(call, rules);

    // The same keys in pages of 32 rows, in reverse order; the unused slots hold NaN.
    Call paged = call;
    Ints pages;
    for (std::int32_t page = 15; page >= 0; --page) pages.push_back(page);
    for (const bool keys : {true, false}) {
        const Array from = keys ? call.k : call.v, to(DType::kBF16, {16, 32, 8, 64});
        for (std::int64_t page = 0; page < 16; ++page)
            to.part(0, 15 - page, 1).assign(from.part(0, page / 4, 1).part(1, page % 4 * 32, 32));
        (keys ? paged.k : paged.v) = to;
    }
    paged.cache.page_table = {pages, {4, 4}};
    const Answer expected = expected_outputs(call, rules);
    on_every_kernel(Op::kDecode, DType::kBF16, [&](const std::string& kernel) {
        paged.decode(kernel);
        expect_outputs(paged, expected);
    });
}

TEST_F(Reports, R038_nan_in_a_key_that_the_mask_hides) {
    const Bytes first_only = {1, 0, 1, 0};
    Call call(DType::kF32, {.sq = 2, .sk = 2, .d = 4});
    call.k.set(0, 1, 0, 0, kNaN);
    call.mask.mask = {first_only, DType::kBool, {1, 1, 2, 2}};
    expect_forward(call, {.visible = [](const Place& at) { return at.key == 0; }});
}

// Keys not older than ten rows: for rows beyond 522 the first 512 keys are all hidden.
TEST_F(Reports, R039_rows_whose_first_blocks_of_keys_are_hidden) {
    constexpr std::int64_t kLength = 600;
    Bytes recent(kLength * kLength, 0);
    for (std::int64_t i = 0; i < kLength; ++i)
        for (std::int64_t j = std::max<std::int64_t>(i - 10, 0); j <= i; ++j) recent[i * kLength + j] = 1;
    const Rules rules{.visible = band(kLength, kLength, {.left = 10, .right = 0})};
    Call call(DType::kF32, {.sq = kLength, .sk = kLength, .d = 2});
    call.mask.mask = {recent, DType::kBool, {1, 1, kLength, kLength}};
    expect_backward(call, rules);
    call.mask = {.causal = true, .window_left = 10};
    expect_backward(call, rules);
}

TEST_F(Reports, R041_nan_in_a_visible_input_is_nan_in_the_output) {
    const Call call(DType::kF32, {.b = 2, .sq = 16, .sk = 16, .h = 4, .hk = 4, .d = 8});
    call.q.fill(kNaN);
    on_every_kernel(Op::kForward, DType::kF32, [&](const std::string& kernel) {
        call.forward(kernel);
        expect_all(call.o, kNaN, "o");
        expect_all(call.lse, kNaN, "lse");
    });
    // In one key: the rows that see it.
    Call causal_call(DType::kF32, {.sq = 16, .sk = 16, .d = 8});
    causal_call.mask.causal = true;
    causal_call.k.set(0, 9, 0, 3, kNaN);
    expect_forward(causal_call, {.visible = causal(16, 16)});
    EXPECT_TRUE(std::isnan(causal_call.o(0, 9, 0, 0)));
    EXPECT_FALSE(std::isnan(causal_call.o(0, 8, 0, 0)));
}

TEST_F(Reports, R120_outputs_are_written_everywhere_and_never_read) {
    const Call call(DType::kBF16, {.sq = 512, .sk = 512, .d = 128});
    on_every_kernel(Op::kForward, DType::kBF16, [&](const std::string& kernel) {
        call.forward(kernel);
        expect_finite(call.o, "o");
        expect_finite(call.lse, "lse");
        const Array o = call.o.contiguous_copy(), lse = call.lse.contiguous_copy();
        call.o.fill(1e30);
        call.lse.fill(1e30);
        run(Op::kForward, call.attention(Op::kForward, kernel));
        expect_same_bits(call.o, o, "o");
        expect_same_bits(call.lse, lse, "lse");
    });
}

}  // namespace
}  // namespace reports
