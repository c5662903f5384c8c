// Padding and masks together: padded keys are dropped, every query is computed, and the causal rule stays on.
#include "call.hpp"

namespace reports {
namespace {

// Packed keys and values in one tensor, fewer keys than queries in one sequence and more in another; the dense call with an explicit mask
// says what the packed one means.
TEST_F(Reports, R049_packed_causal_equals_an_explicit_causal_and_padding_mask) {
    const Ints cu_q = {0, 9, 15}, cu_k = {0, 4, 16};
    Call packed(DType::kF32, {.sq = 15, .sk = 16, .h = 2, .hk = 2, .d = 16});
    const Array pairs = random(DType::kF32, {16, 2, 2, 16}, 77);  // (total_k, k or v, heads, d)
    packed.k = pairs.part(1, 0, 1).permuted({1, 0, 2, 3});
    packed.v = pairs.part(1, 1, 1).permuted({1, 0, 2, 3});
    packed.lengths = {.cu_seqlens_q = cu_q, .cu_seqlens_k = cu_k, .max_seqlen_q = 9, .max_seqlen_k = 12};
    packed.mask.causal = true;
    expect_packed_forward(packed, cu_q, cu_k, [](std::int64_t seqlen_q, std::int64_t seqlen_k) {
        return Rules{.visible = causal(seqlen_q, seqlen_k)};
    });

    Call dense(DType::kF32, {.b = 2, .sq = 9, .sk = 12, .h = 2, .hk = 2, .d = 16});
    Bytes visible(2 * 9 * 12, 0);
    for (std::int32_t n = 0; n < 2; ++n) {
        const std::int32_t queries = cu_q[n + 1] - cu_q[n], keys = cu_k[n + 1] - cu_k[n];
        dense.q.part(0, n, 1).part(1, 0, queries).assign(packed.q.part(1, cu_q[n], queries));
        dense.k.part(0, n, 1).part(1, 0, keys).assign(packed.k.part(1, cu_k[n], keys));
        dense.v.part(0, n, 1).part(1, 0, keys).assign(packed.v.part(1, cu_k[n], keys));
        for (std::int32_t i = 0; i < queries; ++i)
            for (std::int32_t j = 0; j < keys && j <= i + keys - queries; ++j) visible[(n * 9 + i) * 12 + j] = 1;
    }
    dense.mask.mask = {visible, DType::kBool, {2, 1, 9, 12}};
    dense.forward();
    packed.forward();
    for (std::int32_t n = 0; n < 2; ++n) {
        const std::int32_t queries = cu_q[n + 1] - cu_q[n];
        expect_close(packed.o.part(1, cu_q[n], queries), dense.o.part(0, n, 1).part(1, 0, queries), 1e-5, "o");
    }
}

TEST_F(Reports, R058_a_key_padding_mask_in_cross_attention_drops_only_keys) {
    const Ints used = {12, 5, 1};
    for (const std::int64_t batch : {1, 3}) {
        Bytes visible(batch * 12, 0);
        for (std::int64_t b = 0; b < batch; ++b) std::fill_n(visible.begin() + b * 12, used[b], std::uint8_t{1});
        const Rules rules{.visible = [&](const Place& at) { return at.key < used[at.batch]; }};
        Call call(DType::kF32, {.b = batch, .sq = 7, .sk = 12, .h = 2, .hk = 2, .d = 16});
        call.mask.mask = {visible, DType::kBool, {batch, 1, 1, 12}};
        expect_backward(call, rules);
        expect_finite(call.lse, "lse");
        call.mask = {};
        call.lengths.seqused_k = {used.data(), {batch}};
        expect_backward(call, rules);
        expect_finite(call.lse, "lse");
    }
}

TEST_F(Reports, R059_causal_stays_on_beside_left_padding) {
    const Ints pads = {0, 3, 7};
    Bytes visible(3 * 8, 1);
    for (std::int64_t b = 0; b < 3; ++b) std::fill_n(visible.begin() + b * 8, pads[b], std::uint8_t{0});
    const Rules rules{.visible = [&](const Place& at) { return at.key >= pads[at.batch] && at.key <= at.row; }};
    Call call(DType::kF32, {.b = 3, .sq = 8, .sk = 8, .h = 2, .hk = 1, .d = 16});
    call.mask = {.causal = true, .mask = {visible, DType::kBool, {3, 1, 1, 8}}};
    expect_backward(call, rules);
    call.mask = {.causal = true};
    call.lengths.leftpad_k = pads;
    expect_backward(call, rules);
    // The padding itself may hold anything.
    for (std::size_t b = 0; b < 3; ++b)
        for (const Array& x : {call.k, call.v}) x.part(0, b, 1).part(1, 0, pads[b]).fill(kNaN);
    expect_forward(call, rules);
}

}  // namespace
}  // namespace reports
