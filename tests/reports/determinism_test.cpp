// The same bits again: over repeats, with other neighbours in the batch, with other numbers of splits and threads.
#include "call.hpp"

namespace reports {
namespace {

TEST_F(Reports, R114_deterministic_gradients_are_bitwise_equal_over_30_repeats) {
    Call call(DType::kBF16, {.b = 2, .sq = 150, .sk = 190, .h = 4, .hk = 2, .d = 64});
    call.mask.causal = true;
    call.options = {.deterministic = true, .num_threads = 4};
    call.forward();
    on_every_kernel(Op::kBackward, DType::kBF16, [&](const std::string& kernel) {
        const int repeats = is_reference(kernel) ? 2 : 30;
        call.backward(kernel);
        const Array first[] = {call.grad.q.contiguous_copy(), call.grad.k.contiguous_copy(),
                               call.grad.v.contiguous_copy()};
        for (int repeat = 1; repeat < repeats; ++repeat) {
            call.backward(kernel);
            expect_same_bits(call.grad.q, first[0], "grad_q");
            expect_same_bits(call.grad.k, first[1], "grad_k");
            expect_same_bits(call.grad.v, first[2], "grad_v");
        }
    });
}

TEST_F(Reports, R115_the_deterministic_flag_reaches_the_plan) {
    Call call(DType::kF32, {.sq = 16, .sk = 16, .d = 16});
    const auto text = [&] { return tilewise::Plan(device(), Op::kBackward, call.attention(Op::kBackward)).text(); };
    EXPECT_EQ(text().find("deterministic"), std::string::npos);
    call.options.deterministic = true;
    EXPECT_NE(text().find("deterministic"), std::string::npos) << text();
    EXPECT_NE(tilewise::to_c(call.attention(Op::kBackward)).options.flags & TILEWISE_DETERMINISTIC, 0u);
}

// Packed decode rows, alone and together, with the caller asking for splits and without.
TEST_F(Reports, R117_a_row_has_the_same_bits_alone_and_in_a_batch) {
    for (const std::int64_t heads_kv : {8, 2})
        for (const std::int32_t splits : {0, 4, 7}) {
            const Ints cu_q = {0, 1, 2, 3, 4}, cu_k = {0, 3000, 3010, 5000, 9096};
            Call batch(DType::kBF16, {.sq = 4, .sk = 9096, .h = 8, .hk = heads_kv, .d = 64});
            batch.lengths = {.cu_seqlens_q = cu_q, .cu_seqlens_k = cu_k, .max_seqlen_q = 1, .max_seqlen_k = 4096};
            batch.options = {.batch_invariant = true, .num_splits = splits, .num_threads = 4};
            batch.forward();
            for (std::size_t n = 0; n < 4; ++n) {
                Call alone = sequence_of(batch, cu_q, cu_k, n);
                const Array o = alone.o.contiguous_copy(), lse = alone.lse.contiguous_copy();
                for (const std::int32_t other : {0, 1, 16}) {
                    alone.options.num_splits = other;
                    alone.forward();
                    expect_same_bits(alone.o, o, "o");
                    expect_same_bits(alone.lse, lse, "lse");
                }
                if (splits == 0) expect_outputs(alone, expected_outputs(alone));
            }
        }
}

// What racecheck looks for on a GPU, threads show on a CPU: many of them, many times.
TEST_F(Reports, R118_many_threads_give_the_bits_of_one) {
    Call call(DType::kF32, {.b = 3, .sq = 60, .sk = 300, .h = 4, .hk = 2, .d = 32});
    call.options.num_threads = 1;
    call.options.num_splits = 3;
    call.forward();
    const Array o = call.o.contiguous_copy();
    call.options.num_threads = 16;
    for (int repeat = 0; repeat < 20; ++repeat) {
        call.forward();
        expect_same_bits(call.o, o, "o");
    }
}

}  // namespace
}  // namespace reports
