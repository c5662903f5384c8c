// Packed sequences: lengths that do not fit the tensors, rows that belong to no sequence, parts that are computed apart and merged.
#include "call.hpp"
#include "memory.hpp"

namespace reports {
namespace {

Rules no_rules(std::int64_t, std::int64_t) { return {}; }

TEST_F(Reports, R057_lengths_that_reach_past_the_keys_are_refused) {
    if (!is_on_host("integers are read before a launch")) return;
    const Ints cu_q = {0, 10}, cu_k = {0, 20}, used = {20};
    for (const std::int64_t keys : {1, 2, 10, 17}) {
        Call packed(DType::kF32, {.sq = 10, .sk = keys, .h = 4, .hk = 4, .d = 8});
        packed.lengths = {.cu_seqlens_q = cu_q, .cu_seqlens_k = cu_k};
        expect_invalid([&] { packed.forward(); }, "cu_seqlens_k", {"20", std::to_string(keys) + " rows"});
        expect_all(packed.o, kNaN, "o");
        Call dense(DType::kF32, {.sq = 10, .sk = keys, .h = 4, .hk = 4, .d = 8});
        dense.lengths.seqused_k = used;
        expect_invalid([&] { dense.forward(); }, "seqused_k", {"[0] is 20", "0 to " + std::to_string(keys)});
        expect_all(dense.o, kNaN, "o");
    }
}

TEST_F(Reports, R061_rows_past_the_last_sequence_are_left_alone) {
    const Ints cu_q = {0, 4, 9}, cu_k = {0, 6, 13};
    const Array pairs(DType::kF32, {1, 20, 4, 16});  // heads 0, 1 of k, then of v; rows past 13 stay NaN
    pairs.part(1, 0, 13).randomize(5);
    Call call(DType::kF32, {.sq = 14, .sk = 20, .h = 2, .hk = 2, .d = 16});
    call.k = pairs.part(2, 0, 2);
    call.v = pairs.part(2, 2, 2);
    for (const Array& x : {call.q, call.grad.o}) x.part(1, 9, 5).fill(kNaN);
    call.lengths = {.cu_seqlens_q = cu_q, .cu_seqlens_k = cu_k, .max_seqlen_q = 5, .max_seqlen_k = 7};
    expect_packed_backward(call, cu_q, cu_k, no_rules);
    expect_all(call.o.part(1, 9, 5), kNaN, "o");
    expect_all(call.lse.part(2, 9, 5), kNaN, "lse");
    expect_all(call.grad.q.part(1, 9, 5), 0.0, "grad_q");
    expect_all(call.grad.k.part(1, 13, 7), 0.0, "grad_k");
    expect_all(call.grad.v.part(1, 13, 7), 0.0, "grad_v");
}

TEST_F(Reports, R062_cu_seqlens_of_three_times_the_tokens_is_refused) {
    if (!is_on_host("integers are read before a launch")) return;
    const Ints cu = {0, 256, 512, 768};
    Call call(DType::kF16, {.sq = 256, .sk = 256, .h = 16, .hk = 16, .d = 256});
    call.lengths = {.cu_seqlens_q = cu, .cu_seqlens_k = cu, .max_seqlen_q = 256, .max_seqlen_k = 256};
    expect_invalid([&] { call.forward(); }, "cu_seqlens_q", {"768", "256 rows"});
    expect_all(call.o, kNaN, "o");
    expect_invalid([&] { call.backward(); }, "cu_seqlens_q", {"768"});
    expect_all(call.grad.k, kNaN, "grad_k");
}

// Seven tokens, padded to ten, on two ranks of five: each rank attends to its own keys, and the parts merge into the whole.
TEST_F(Reports, R065_two_ranks_with_an_odd_number_of_tokens) {
    Call whole(DType::kF16, {.sq = 7, .sk = 7, .d = 8});
    whole.mask.causal = true;
    whole.forward();
    const Array parts(DType::kF16, {2, 7, 1, 8}), lses(DType::kF32, {2, 1, 7, 1});
    for (std::int32_t rank = 0; rank < 2; ++rank) {
        const Ints used = {rank == 0 ? 5 : 2};
        Ints end(7);  // of the rank's own keys, for each row
        for (std::int32_t i = 0; i < 7; ++i) end[i] = std::max(i + 1 - 5 * rank, 0);
        Call own(DType::kF16, {.sq = 7, .sk = 5, .d = 8});
        own.q = whole.q;
        own.o = parts.part(0, rank, 1);
        own.lse = lses.part(0, rank, 1);
        for (const Array& x : {own.k, own.v}) x.fill(kNaN);
        own.k.part(1, 0, used[0]).assign(whole.k.part(1, 5 * rank, used[0]));
        own.v.part(1, 0, used[0]).assign(whole.v.part(1, 5 * rank, used[0]));
        own.lengths.seqused_k = used;
        own.mask.key_end = {end, {1, 7}};
        own.forward();
    }
    const Array o(DType::kF16, {1, 7, 1, 8}), lse(DType::kF32, {1, 1, 7, 1});
    run(tilewise::Combination{
        .partial_o = parts.view(), .partial_lse = lses.view(0, 3), .o = o.view(1), .lse = lse.view(1, 3)});
    const Answer expected = expected_outputs(whole, {.visible = causal(7, 7)});
    expect_close(o, expected.o, 0x1p-9, "o");  // rounded to fp16 twice
    expect_close(lse, expected.lse, 1e-6, "lse");
    expect_close(whole.o, expected.o, 0x1p-10, "o of one rank");
}

// Many uneven sequences; the page behind cu_seqlens cannot be read.
TEST_F(Reports, R067_nothing_is_read_past_the_last_length) {
    if (!is_on_host("memory that ends before a page that cannot be touched")) return;
    Ints cu = {0};
    for (std::int32_t n = 0; n < 203; ++n) cu.push_back(cu.back() + (n * 37 % 11 == 0 ? 0 : n * 29 % 61));
    const GuardedMemory q_lengths(cu.size() * 4, 4), k_lengths(cu.size() * 4, 4);
    for (const GuardedMemory* memory : {&q_lengths, &k_lengths}) std::memcpy(memory->data(), cu.data(), cu.size() * 4);
    Call call(DType::kF16, {.sq = cu.back(), .sk = cu.back(), .h = 2, .hk = 1, .d = 8});
    call.lengths = {.cu_seqlens_q = {q_lengths.data(), DType::kI32, {cu.size()}},
                    .cu_seqlens_k = {k_lengths.data(), DType::kI32, {cu.size()}},
                    .max_seqlen_q = 60,
                    .max_seqlen_k = 60};
    call.mask.causal = true;
    expect_packed_backward(call, cu, cu, [](std::int64_t seqlen_q, std::int64_t seqlen_k) {
        return Rules{.visible = causal(seqlen_q, seqlen_k)};
    });
    EXPECT_TRUE(q_lengths.is_intact() && k_lengths.is_intact());
}

TEST_F(Reports, R068_backward_with_used_lengths_zeroes_the_gradients_of_unused_rows) {
    const Ints used_q = {7, 0, 33}, used_k = {40, 12, 1};
    Call call(DType::kBF16, {.b = 3, .sq = 33, .sk = 40, .h = 4, .hk = 2, .d = 32});
    call.lengths = {.seqused_q = used_q, .seqused_k = used_k};
    call.mask.causal = true;
    for (std::size_t n = 0; n < 3; ++n) {
        for (const Array& x : {call.q, call.grad.o}) x.part(0, n, 1).part(1, used_q[n], 33 - used_q[n]).fill(kNaN);
        for (const Array& x : {call.k, call.v}) x.part(0, n, 1).part(1, used_k[n], 40 - used_k[n]).fill(kNaN);
    }
    on_every_kernel(Op::kBackward, DType::kBF16, [&](const std::string& kernel) {
        call.forward();
        call.backward(kernel);
        for (std::int64_t n = 0; n < 3; ++n) {
            Call one = sequence_of(call, n);
            expect_all(one.o.part(1, used_q[n], 33 - used_q[n]), kNaN, "unused o");
            expect_all(one.grad.q.part(1, used_q[n], 33 - used_q[n]), 0.0, "unused grad_q");
            expect_all(one.grad.k.part(1, used_k[n], 40 - used_k[n]), 0.0, "unused grad_k");
            expect_all(one.grad.v.part(1, used_k[n], 40 - used_k[n]), 0.0, "unused grad_v");
            one = sequence_of(one, Rows{0, used_q[n]}, Rows{0, used_k[n]});
            const Rules rules{.visible = causal(used_q[n], used_k[n])};
            expect_outputs(one, expected_outputs(one, rules));
            expect_gradients(one, expected_gradients(one, rules));
        }
    });
}

// Nobody has to know the longest length: any upper bound, or none, gives the same bits.
TEST_F(Reports, R070_max_seqlen_is_an_upper_bound_or_unknown) {
    const Ints cu_q = {0, 40, 41, 90}, cu_k = {0, 64, 130, 131};
    Call call(DType::kF32, {.sq = 90, .sk = 131, .h = 2, .hk = 2, .d = 32});
    call.mask.causal = true;
    call.lengths = {.cu_seqlens_q = cu_q, .cu_seqlens_k = cu_k, .max_seqlen_q = 49, .max_seqlen_k = 66};
    call.forward();
    const Array exact = call.o.contiguous_copy();
    for (const std::int64_t bound : {0, 70, 1 << 20}) {
        call.lengths.max_seqlen_q = call.lengths.max_seqlen_k = bound;
        call.forward();
        expect_same_bits(call.o, exact, "o");
    }
    if (!device().is_host()) return;  // nobody reads the lengths before a launch
    call.lengths.max_seqlen_q = 48;
    expect_invalid([&] { call.forward(); }, "max_seqlen_q", {"48", "49 rows of sequence 2"});
}

}  // namespace
}  // namespace reports
