// Gradients at head dimensions and options where others fail to compile, hang or are wrong: what a forward serves, a backward serves.
#include "call.hpp"

namespace reports {
namespace {

// q, k, v of one packed tensor (length, 3, heads, d).
TEST_F(Reports, R103_backward_of_packed_heads_of_160_and_192) {
    for (const std::int64_t head_dim : {160, 192})
        for (const DType dtype : {DType::kF16, DType::kBF16})
            for (const bool is_causal : {false, true}) {
                const Array qkv = random(dtype, {1, 97, 6, head_dim}, 3);
                Call call(dtype, {.sq = 97, .sk = 97, .h = 2, .hk = 2, .d = head_dim});
                call.q = qkv.part(2, 0, 2);
                call.k = qkv.part(2, 2, 2);
                call.v = qkv.part(2, 4, 2);
                call.mask.causal = is_causal;
                expect_backward(call, is_causal ? Rules{.visible = causal(97, 97)} : Rules{});
            }
}

TEST_F(Reports, R105_a_head_dim_of_256) {
    Call call(DType::kBF16, {.sq = 256, .sk = 256, .h = 2, .hk = 2, .d = 256});
    call.mask.causal = true;
    expect_backward(call, {.visible = causal(256, 256)});
}

TEST_F(Reports, R107_head_dims_that_are_no_multiple_of_32) {
    for (const std::int64_t head_dim : {1, 3, 8, 24, 40, 72, 100, 136, 200, 255})
        for (const DType dtype : {DType::kF32, DType::kBF16})
            expect_backward(Call(dtype, {.sq = 21, .sk = 37, .h = 2, .hk = 1, .d = head_dim}));
}

TEST_F(Reports, R108_values_narrower_and_wider_than_keys) {
    for (const auto& [head_dim, head_dim_v] : {std::pair{192, 128}, {64, 512}, {256, 1}})
        for (const bool is_causal : {false, true}) {
            Call call(DType::kBF16, {.sq = 130, .sk = 130, .h = 2, .hk = 2, .d = head_dim, .dv = head_dim_v});
            call.mask.causal = is_causal;
            expect_backward(call, is_causal ? Rules{.visible = causal(130, 130)} : Rules{});
        }
}

TEST_F(Reports, R109_backward_with_a_softcap) {
    Call call(DType::kBF16, {.b = 2, .sq = 140, .sk = 140, .h = 2, .hk = 2, .d = 128});
    call.q.randomize(1, 4.0);
    call.mask.causal = true;
    call.score.softcap = 10.0f;
    expect_backward(call, {.softcap = 10.0, .visible = causal(140, 140)});
}

}  // namespace
}  // namespace reports
