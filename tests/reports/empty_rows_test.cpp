// Rows that see no key, sequences without keys, and problems of one key: o = 0, lse = -inf, gradients 0, in every form of a call.
#include "call.hpp"

namespace reports {
namespace {

Rules causal_rules(std::int64_t seqlen_q, std::int64_t seqlen_k) { return {.visible = causal(seqlen_q, seqlen_k)}; }

TEST_F(Reports, R021_gradients_are_finite_when_causal_queries_outnumber_keys) {
    const Ints cu_q = {0, 76, 110, 256}, cu_k = {0, 1, 2, 3};
    Call call(DType::kF16, {.sq = 256, .sk = 3, .d = 32});
    call.lengths = {.cu_seqlens_q = cu_q, .cu_seqlens_k = cu_k, .max_seqlen_q = 256, .max_seqlen_k = 3};
    call.mask.causal = true;
    call.grad.o.fill(1.0);
    expect_packed_backward(call, cu_q, cu_k, causal_rules);
    // Row 74 of the first sequence sees nothing, row 75 sees the one key.
    EXPECT_EQ(call.o(0, 74, 0, 0), 0.0);
    EXPECT_EQ(call.lse(0, 0, 74, 0), -kInfinity);
    EXPECT_EQ(call.grad.q(0, 74, 0, 0), 0.0);
    EXPECT_EQ(call.o(0, 75, 0, 0), call.v(0, 0, 0, 0));
}

TEST_F(Reports, R022_one_query_and_one_key_have_no_gradient_through_the_softmax) {
    const Call call(DType::kF16, {.d = 16}, 352);
    call.grad.o.fill(1.0);
    call.forward();
    on_every_kernel(Op::kBackward, DType::kF16, [&](const std::string& kernel) {
        call.backward(kernel);
        expect_at_most(call.grad.q, 1e-3, "grad_q");
        expect_at_most(call.grad.k, 1e-3, "grad_k");
        expect_all(call.grad.v, 1.0, "grad_v");
    });
}

TEST_F(Reports, R024_one_row_sequences_with_an_empty_one_among_them) {
    const Ints cu_q = {0, 1, 1, 2}, cu_k = {0, 3, 3, 8};
    Call call(DType::kBF16, {.sq = 2, .sk = 8, .h = 9, .hk = 3, .d = 64});
    call.lengths = {.cu_seqlens_q = cu_q, .cu_seqlens_k = cu_k, .max_seqlen_q = 1, .max_seqlen_k = 5};
    call.mask.causal = true;
    call.score.softmax_scale = 1.0f;
    expect_packed_backward(call, cu_q, cu_k, [](std::int64_t seqlen_q, std::int64_t seqlen_k) {
        return Rules{.scale = 1.0, .visible = causal(seqlen_q, seqlen_k)};
    });
}

TEST_F(Reports, R025_a_sequence_without_keys_writes_zeros_and_nothing_outside) {
    const Ints cu_q = {0, 5, 9, 12}, cu_k = {0, 7, 7, 7};
    Call call(DType::kBF16, {.sq = 12, .sk = 7, .h = 4, .hk = 2, .d = 64});
    const Array all_o(DType::kBF16, {1, 20, 4, 64}), all_lse(DType::kF32, {1, 4, 20, 1});
    call.o = all_o.part(1, 4, 12);
    call.lse = all_lse.part(2, 4, 12);
    call.lengths = {.cu_seqlens_q = cu_q, .cu_seqlens_k = cu_k, .max_seqlen_q = 5, .max_seqlen_k = 7};
    expect_packed_backward(call, cu_q, cu_k, [](auto...) { return Rules{}; });
    expect_all(call.o.part(1, 5, 7), 0.0, "o");
    for (const std::int64_t begin : {0, 16}) {
        expect_all(all_o.part(1, begin, 4), kNaN, "o outside");
        expect_all(all_lse.part(2, begin, 4), kNaN, "lse outside");
    }
}

// The report has head_dim 576; 256 is the largest here.
TEST_F(Reports, R027_decode_of_an_empty_paged_cache) {
    const Ints seqlens(16, 0);
    const Ints no_pages = {-1};
    Call call(DType::kBF16, {.b = 16, .h = 16, .d = 256, .dv = 512});
    call.k = Array(DType::kBF16, {0, 64, 1, 256});
    call.v = Array(DType::kBF16, {0, 64, 1, 512});
    call.mask.causal = true;
    call.cache = {.cache_seqlens = seqlens, .page_table = {no_pages, {16, 0}}};
    on_every_kernel(Op::kDecode, DType::kBF16, [&](const std::string& kernel) {
        call.decode(kernel);
        expect_all(call.o, 0.0, "o");
        expect_all(call.lse, -kInfinity, "lse");
    });
}

TEST_F(Reports, R028_lse_without_keys_is_minus_infinity_and_merges_as_nothing) {
    const Call nothing(DType::kF32, {.sq = 6, .sk = 0, .h = 3, .hk = 1, .d = 16});
    const Call something(DType::kF32, {.sq = 6, .sk = 5, .h = 3, .hk = 1, .d = 16});
    nothing.forward();
    something.forward();
    expect_all(nothing.o, 0.0, "o");
    expect_all(nothing.lse, -kInfinity, "lse");

    // A part that counts nothing may hold anything.
    const Array parts(DType::kF32, {2, 6, 3, 16}), lses(DType::kF32, {2, 3, 6, 1});
    parts.part(0, 0, 1).fill(kNaN);
    parts.part(0, 1, 1).assign(something.o);
    lses.part(0, 0, 1).assign(nothing.lse);
    lses.part(0, 1, 1).assign(something.lse);
    const Array o(DType::kF32, {1, 6, 3, 16}), lse(DType::kF32, {1, 3, 6, 1});
    run(tilewise::Combination{
        .partial_o = parts.view(), .partial_lse = lses.view(0, 3), .o = o.view(1), .lse = lse.view(1, 3)});
    expect_close(o, something.o, 1e-6, "o");
    expect_close(lse, something.lse, 1e-6, "lse");
    lses.fill(-kInfinity);
    run(tilewise::Combination{
        .partial_o = parts.view(), .partial_lse = lses.view(0, 3), .o = o.view(1), .lse = lse.view(1, 3)});
    expect_all(o, 0.0, "o");
    expect_all(lse, -kInfinity, "lse");
}

// Every way to say "no keys" means the same, forward and backward.
TEST_F(Reports, R032_all_ways_to_see_no_key_give_one_answer) {
    const Ints zeros(2, 0), no_keys(10, 0), cu_q = {0, 5, 10}, cu_k = {0, 0, 0};
    const Bytes hidden(5 * 9, 0);
    const Shape shape{.b = 2, .sq = 5, .sk = 9, .h = 4, .hk = 2, .d = 16};
    std::vector<Call> calls;
    calls.emplace_back(DType::kF32, Shape{.b = 2, .sq = 5, .sk = 0, .h = 4, .hk = 2, .d = 16});
    calls.emplace_back(DType::kF32, shape).lengths.seqused_k = zeros;
    calls.emplace_back(DType::kF32, shape).mask.mask = {hidden, DType::kBool, {1, 1, 5, 9}};
    calls.emplace_back(DType::kF32, shape).mask.key_end = {no_keys, {2, 5}};
    calls.emplace_back(DType::kF32, Shape{.sq = 10, .sk = 0, .h = 4, .hk = 2, .d = 16}).lengths = {
        .cu_seqlens_q = cu_q, .cu_seqlens_k = cu_k};
    for (std::size_t n = 0; n < calls.size(); ++n) {
        SCOPED_TRACE("form " + std::to_string(n));
        const Call& call = calls[n];
        on_every_kernel(Op::kForward, DType::kF32, [&](const std::string& kernel) {
            call.forward(kernel);
            expect_all(call.o, 0.0, "o");
            expect_all(call.lse, -kInfinity, "lse");
        });
        on_every_kernel(Op::kBackward, DType::kF32, [&](const std::string& kernel) {
            call.backward(kernel);
            expect_all(call.grad.q, 0.0, "grad_q");
            expect_all(call.grad.k, 0.0, "grad_k");
            expect_all(call.grad.v, 0.0, "grad_v");
        });
    }
}

TEST_F(Reports, R036_rows_that_a_boolean_mask_hides_are_zero) {
    Bytes bytes(64, 0), bits(8, 0);
    for (std::size_t row = 0; row < 4; ++row) {
        for (std::size_t key = 0; key < 4; ++key) bytes[row * 8 + key] = 1;
        bits[row] = 0x0f;
    }
    Call call(DType::kF32, {.sq = 8, .sk = 8, .d = 8});
    const Rules rules{.visible = [](const Place& at) { return at.row < 4 && at.key < 4; }};
    call.mask.mask = {bytes, DType::kBool, {1, 1, 8, 8}};
    expect_backward(call, rules);
    expect_all(call.o.part(1, 4, 4), 0.0, "o");
    call.mask.mask = {bits, DType::kBits, {1, 1, 8, 1}};
    expect_backward(call, rules);
}

TEST_F(Reports, R046_causal_rows_before_the_first_key_are_zero_unless_top_left) {
    Call call(DType::kF32, {.sq = 2048, .sk = 1024, .d = 8});
    call.mask.causal = true;
    expect_forward(call, causal_rules(2048, 1024));
    expect_all(call.o.part(1, 0, 1024), 0.0, "o");
    expect_all(call.lse.part(2, 0, 1024), -kInfinity, "lse");
    expect_finite(call.lse.part(2, 1024, 1024), "lse");
    call.mask.top_left = true;
    expect_forward(call, {.visible = band(2048, 1024, {.right = 0, .top_left = true})});
    expect_finite(call.lse, "lse");
}

}  // namespace
}  // namespace reports
