// Scores far from zero, huge inputs, softcaps: the running maximum and the sums are right where a finite "minus infinity" or a 16-bit
// intermediate would not be.
#include "call.hpp"

namespace reports {
namespace {

// Scores near -65536 that differ by small integers, exact in fp32. There a unit in the last place of fp32 is 2^-7, so is the error of P.
TEST_F(Reports, R030_rows_whose_scores_are_all_below_minus_50000) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        Call call(dtype, {.sq = 3, .sk = 70, .h = 2, .hk = 1, .d = 16});
        call.q.fill(0.0);
        call.k.fill(0.0);
        call.q.part(3, 0, 1).fill(256.0);
        call.q.part(3, 1, 1).fill(1.0);
        call.k.part(3, 0, 1).fill(-256.0);
        for (std::int64_t j = 0; j < 70; ++j) call.k.set(0, j, 0, 1, static_cast<double>(j % 7 - 3));
        call.score.softmax_scale = 1.0f;
        const Answer expected = expected_outputs(call, {.scale = 1.0});
        on_every_kernel(Op::kForward, dtype, [&](const std::string& kernel) {
            call.forward(kernel);
            expect_close(call.o, expected.o, 0.02, "o");
            expect_close(call.lse, expected.lse, 3e-7, "lse");
        });
    }
}

// One outlier channel drives every visible score to about -2000, and the first tile of keys is hidden from the last rows' point of view.
TEST_F(Reports, R033_strongly_negative_scores_behind_a_causal_mask) {
    Call call(DType::kBF16, {.sq = 88, .sk = 448, .h = 14, .hk = 2, .d = 64});
    call.q.part(3, 0, 1).fill(1.0);
    call.k.part(3, 0, 1).fill(-16000.0);
    call.mask.causal = true;
    expect_forward(call, {.visible = causal(88, 448)});
    // The same with more queries than keys, so that whole tiles of the first rows see nothing.
    Call tall(DType::kBF16, {.sq = 448, .sk = 88, .h = 14, .hk = 2, .d = 64});
    tall.q.part(3, 0, 1).fill(1.0);
    tall.k.part(3, 0, 1).fill(-16000.0);
    tall.mask.causal = true;
    expect_forward(tall, {.visible = causal(448, 88)});
}

TEST_F(Reports, R042_one_key_with_huge_elements) {
    const Call call(DType::kBF16, {.d = 64});
    for (const Array& x : {call.q, call.k, call.v}) x.fill(133120.0);
    on_every_kernel(Op::kForward, DType::kBF16, [&](const std::string& kernel) {
        call.forward(kernel);
        expect_all(call.o, 133120.0, "o");
        expect_finite(call.lse, "lse");
    });
}

// q . k = -960 in one channel: exp(-lse) overflows wherever padding of the last tile of keys is not masked first.
TEST_F(Reports, R043_backward_with_a_very_negative_lse) {
    for (const std::int64_t length : {640, 704, 768}) {
        SCOPED_TRACE(length);
        Bytes lower(length * length, 0);
        for (std::int64_t i = 0; i < length; ++i) std::fill_n(lower.begin() + i * length, i + 1, std::uint8_t{1});
        Call call(DType::kBF16, {.sq = length, .sk = length, .d = 64});
        call.q.randomize(1, 0.1).part(3, 0, 1).fill(1.0);
        call.k.randomize(2, 0.1).part(3, 0, 1).fill(-120.0 * std::sqrt(64.0));
        call.mask.mask = {lower, DType::kBool, {1, 1, length, length}};
        const Gradients expected = expected_gradients(call, {.visible = causal(length, length)});
        call.forward();
        on_every_kernel(Op::kBackward, DType::kBF16, [&](const std::string& kernel) {
            if (length != 704 && is_reference(kernel)) return;  // slow, and one length tells
            call.backward(kernel);
            expect_close(call.grad.k, expected.k, backward_tolerance(DType::kBF16), "grad_k");
            expect_close(call.grad.v, expected.v, backward_tolerance(DType::kBF16), "grad_v");
            expect_close(call.grad.q.part(3, 1, 63), expected.q.part(3, 1, 63), backward_tolerance(DType::kBF16),
                         "grad_q");
            // All keys are equal in channel 0, so its true gradient is 0; what is left is the rounding of o, 120 times as large.
            expect_at_most(call.grad.q.part(3, 0, 1), 5.0, "grad_q");
        });
        std::fill(lower.begin(), lower.end(), std::uint8_t{1});
        call.forward();
        call.backward();
        for (const Array& grad : {call.grad.q, call.grad.k, call.grad.v}) expect_finite(grad, "gradient");
    }
}

TEST_F(Reports, R045_backward_of_two_rows_without_a_padding_mask) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        Call call(dtype, {.b = 3, .sq = 2, .sk = 2, .h = 4, .hk = 2, .d = 64});
        expect_backward(call);
        call.mask.causal = true;
        expect_backward(call, {.visible = causal(2, 2)});
    }
}

TEST_F(Reports, R111_softcap_is_cap_times_tanh) {
    Call call(DType::kF32, {.sq = 40, .sk = 50, .h = 2, .hk = 1, .d = 32});
    call.q.randomize(1, 4.0);
    for (const float cap : {0.5f, 5.0f, 30.0f}) {
        call.score.softcap = cap;
        expect_forward(call, {.softcap = static_cast<double>(cap)});
    }
    // One key: o = v whatever the cap, and lse is the capped score itself.
    Call one(DType::kF32, {.d = 1});
    one.q.fill(6.0);
    one.k.fill(1.0);
    one.score.softcap = 4.0f;
    one.forward();
    EXPECT_NEAR(one.lse(0, 0, 0, 0), 4.0 * std::tanh(1.5), 1e-5);
}

// The raw products pass 80000, more than fp16 holds; soft-capped, they must still be told apart.
TEST_F(Reports, R156_softcap_of_fp16_products_past_the_range_of_fp16) {
    Call call(DType::kF16, {.sq = 20, .sk = 30, .h = 2, .hk = 1, .d = 128});
    call.q.randomize(1, 8.0).part(3, 0, 1).fill(400.0);
    call.k.randomize(2, 8.0);
    for (std::int64_t j = 0; j < 30; ++j) call.k.set(0, j, 0, 0, j % 2 == 0 ? 200.0 : -200.0);
    call.score = {.softmax_scale = 0x1p-10f, .softcap = 50.0f};
    expect_forward(call, {.scale = 0x1p-10, .softcap = 50.0});
}

}  // namespace
}  // namespace reports
