// Views: permuted, expanded, packed, with gaps, with meaningless strides of axes of size one. Every one gives what its contiguous copy gives.
#include "call.hpp"

namespace reports {
namespace {

TEST_F(Reports, R091_grad_o_may_be_a_permuted_view) {
    Call call(DType::kF16, {.b = 2, .sq = 32, .sk = 32, .h = 4, .hk = 1, .d = 128});
    call.grad.o = random(DType::kF16, {4, 128, 2, 32}, 21).permuted({2, 3, 0, 1});
    expect_backward(call);
}

TEST_F(Reports, R092_grad_o_may_be_one_expanded_number) {
    Call call(DType::kBF16, {.sq = 5, .sk = 5, .h = 2, .hk = 2, .d = 8});
    const Array one = Array(DType::kBF16, {1, 1, 1, 1}).fill(1.0);
    call.grad.o = one.expanded(1, 5).expanded(2, 2).expanded(3, 8);
    call.mask.causal = true;
    expect_backward(call, {.visible = causal(5, 5)});
}

// q, k, v are slices of one tensor (length, batch, heads of q, then k, then v, d), as a fused projection leaves them.
TEST_F(Reports, R094_slices_of_a_fused_projection) {
    constexpr std::int64_t kLength = 2048, kRows = 67;
    const Array fused = random(DType::kF16, {1, kLength, 18, 64}, 31);
    Call sliced(DType::kF16, {.sq = kLength, .sk = kLength, .h = 16, .hk = 1, .d = 64});
    sliced.q = fused.part(2, 0, 16);
    sliced.k = fused.part(2, 16, 1);
    sliced.v = fused.part(2, 17, 1);
    sliced.mask = {.window_left = -1, .window_right = 0};
    Call copied = sliced;
    for (Array* x : {&copied.q, &copied.k, &copied.v}) *x = x->contiguous_copy();
    sliced.forward();
    const Array o = sliced.o.contiguous_copy();
    copied.forward();
    expect_same_bits(o, copied.o, "o");

    Call first = sequence_of(sliced, {0, kRows}, {0, kRows});
    expect_backward(first, {.visible = causal(kRows, kRows)});
}

TEST_F(Reports, R095_expanded_keys_and_values_behind_a_mask) {
    for (const std::int64_t keys : {33, 65, 97, 129}) {
        Bytes visible(5 * keys);
        for (std::int64_t n = 0; n < 5 * keys; ++n) visible[n] = n * n % 5 < 3;
        Call call(DType::kBF16, {.b = 3, .sq = 5, .sk = keys, .h = 4, .hk = 4, .d = 64});
        call.k = random(DType::kBF16, {1, keys, 1, 64}, 41).expanded(0, 3).expanded(2, 4);
        call.v = random(DType::kBF16, {1, keys, 1, 64}, 42).expanded(0, 3).expanded(2, 4);
        call.mask.mask = {visible, DType::kBool, {1, 1, 5, keys}};
        expect_forward(call, {.visible = [&](const Place& at) { return visible[at.row * keys + at.key] != 0; }});
    }
}

TEST_F(Reports, R096_permuted_inputs_with_an_expanded_mask_and_bias) {
    Bytes visible(2 * 40);  // (batch, key); rows and heads by stride 0
    for (std::size_t n = 0; n < visible.size(); ++n) visible[n] = n % 3 != 1;
    const Array bias = random(DType::kF32, {2, 1, 1, 40}, 51);
    Call call(DType::kF32, {.b = 2, .sq = 17, .sk = 40, .h = 3, .hk = 3, .d = 24});
    call.q = random(DType::kF32, {2, 3, 17, 24}, 52).permuted({0, 2, 1, 3});
    call.k = random(DType::kF32, {24, 2, 40, 3}, 53).permuted({1, 2, 3, 0});
    call.v = random(DType::kF32, {3, 24, 40, 2}, 54).permuted({3, 2, 0, 1});
    call.mask.mask = {visible, DType::kBool, {2, 3, 17, 40}, {40, 0, 0, 1}};
    call.score.bias = bias.expanded(1, 3).expanded(2, 17).view();
    expect_backward(call, {.visible = [&](const Place& at) { return visible[at.batch * 40 + at.key] != 0; },
                           .bias = [&](const Place& at) { return bias(at.batch, 0, 0, at.key); }});
}

TEST_F(Reports, R098_bias_strides_of_any_number) {
    const Array shared = random(DType::kF16, {2, 16, 1, 43}, 61), full = random(DType::kF16, {1, 1, 43, 43}, 62);
    ASSERT_EQ(shared.strides(), (Array::Axes{688, 43, 43, 1}));
    Call call(DType::kF16, {.b = 2, .sq = 43, .sk = 43, .h = 16, .hk = 16, .d = 32});
    call.score.bias = shared.view();
    expect_forward(call, {.bias = [&](const Place& at) { return shared(at.batch, at.head, 0, at.key); }});
    call.score.bias = full.view();
    expect_forward(call, {.bias = [&](const Place& at) { return full(0, 0, at.row, at.key); }});
}

TEST_F(Reports, R099_a_last_axis_that_is_not_contiguous) {
    for (const DType dtype : {DType::kF32, DType::kBF16})
        for (const int which : {0, 1, 2, 3}) {
            Call call(dtype, {.b = 2, .sq = 19, .sk = 35, .h = 4, .hk = 2, .d = 24});
            Array* const tensor[] = {&call.q, &call.k, &call.v, &call.o};
            Array& x = *tensor[which];
            const Array::Axes strides{x.size(1) * x.size(2) * 72, x.size(2) * 72, 1, x.size(2) * 3};
            x = Array(dtype, x.shape(), strides);
            x.randomize(70 + which);
            expect_backward(call);
        }
}

// The strides of axes of size one say nothing: they are ignored, however wild.
TEST_F(Reports, R101_strides_of_axes_of_size_one_are_ignored) {
    const Floats q = {1.0f, 2.0f}, k = {0.5f}, v = {3.0f};
    Floats o(2), lse(2);
    constexpr std::int64_t kWild = std::int64_t{1} << 60;
    run(Op::kForward, {.q = {q, {1, 2, 1, 1}, {1, 1, 2, 1}},
                       .k = {k, {1, 1, 1, 1}, {kWild, 3, 0, kWild}},
                       .v = {v, {1, 1, 1, 1}, {0, kWild, 7, 5}},
                       .o = {o, {1, 2, 1, 1}, {kWild, 1, 0, 0}},
                       .lse = {lse, {1, 1, 2}, {0, kWild, 1}}});
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(o[i], 3.0f);
        EXPECT_FLOAT_EQ(lse[i], q[i] * k[0]);
    }
}

// The caller chooses the layout of the output: here that of a q stored with heads before rows.
TEST_F(Reports, R102_the_output_has_the_strides_that_the_caller_gives_it) {
    Call call(DType::kBF16, {.b = 2, .sq = 21, .sk = 30, .h = 3, .hk = 1, .d = 32});
    call.q = random(DType::kBF16, {2, 3, 21, 32}, 81).permuted({0, 2, 1, 3});
    call.o = Array(DType::kBF16, call.q.shape(), call.q.strides());
    call.lse = Array(DType::kF32, {21, 3, 2, 1}).permuted({2, 1, 0, 3});
    call.grad.q = Array(DType::kBF16, call.q.shape(), call.q.strides());
    expect_backward(call);
}

}  // namespace
}  // namespace reports
