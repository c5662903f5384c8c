// Which keys a row sees: the diagonal's alignment, both ends of a window, documents in a batch, biases by position.
#include "call.hpp"

namespace reports {
namespace {

// With zero scores and the unit vectors as values a row of o shows what it sees. (sq, sk) -> "11110" a row.
std::vector<std::string> picture(std::int64_t seqlen_q, std::int64_t seqlen_k, const tilewise::Mask& mask) {
    Call call(DType::kF32, {.sq = seqlen_q, .sk = seqlen_k, .d = 1, .dv = seqlen_k});
    call.mask = mask;
    call.q.fill(0.0);
    call.v.fill(0.0);
    for (std::int64_t j = 0; j < seqlen_k; ++j) call.v.set(0, j, 0, j, 1.0);
    call.forward();
    std::vector<std::string> rows(seqlen_q);
    for (std::int64_t i = 0; i < seqlen_q; ++i)
        for (std::int64_t j = 0; j < seqlen_k; ++j) rows[i] += call.o(0, i, 0, j) > 0.0 ? '1' : '0';
    return rows;
}
using Picture = std::vector<std::string>;

TEST_F(Reports, R048_both_alignments_of_the_causal_diagonal) {
    EXPECT_EQ(picture(2, 5, {.causal = true, .top_left = true}), (Picture{"10000", "11000"}));
    EXPECT_EQ(picture(2, 5, {.causal = true}), (Picture{"11110", "11111"}));
    EXPECT_EQ(picture(5, 2, {.causal = true, .top_left = true}), (Picture{"10", "11", "11", "11", "11"}));
    EXPECT_EQ(picture(5, 2, {.causal = true}), (Picture{"00", "00", "00", "10", "11"}));
}

// Both ends of a window are included: W keys are window_left = W - 1.
TEST_F(Reports, R050_a_causal_window_of_w_keys) {
    EXPECT_EQ(picture(6, 6, {.causal = true, .window_left = 2}),
              (Picture{"100000", "110000", "111000", "011100", "001110", "000111"}));
    EXPECT_EQ(picture(6, 6, {.window_left = 2, .window_right = 0}), picture(6, 6, {.causal = true, .window_left = 2}));
    EXPECT_EQ(picture(4, 4, {.window_left = 1, .window_right = 1}), (Picture{"1100", "1110", "0111", "0011"}));
    EXPECT_EQ(picture(3, 5, {.window_left = 0, .window_right = 0}), (Picture{"00100", "00010", "00001"}));
}

TEST_F(Reports, R052_a_window_side_below_minus_one_is_refused) {
    Call call(DType::kF16, {.sq = 16, .sk = 16, .h = 2, .hk = 2, .d = 128});
    call.mask = {.window_left = -1, .window_right = -3};
    expect_invalid([&] { call.forward(); }, "window_right", {"-3", "-1 (unlimited)"});
    call.mask = {.causal = true, .window_left = -5};
    expect_invalid([&] { call.forward(); }, "window_left", {"-5"});
    expect_all(call.o, kNaN, "o");
}

TEST_F(Reports, R054_sliding_windows_are_the_reference_mask) {
    for (const std::int64_t head_dim : {64, 128})
        for (const Band window : {Band{.left = 64, .right = 0}, Band{.left = 17, .right = 40},
                                  Band{.left = -1, .right = 5}, Band{.left = 130, .right = -1}}) {
            Call call(DType::kBF16, {.sq = 129, .sk = 200, .h = 2, .hk = 1, .d = head_dim});
            call.mask = {.window_left = window.left, .window_right = window.right};
            expect_forward(call, {.visible = band(129, 200, window)});
            Call tall(DType::kF16, {.sq = 200, .sk = 129, .h = 2, .hk = 1, .d = head_dim});
            tall.mask = call.mask;
            expect_forward(tall, {.visible = band(200, 129, window)});
        }
}

// Cross attention with different lengths: the distance is |i + sk - sq - j|, packed and decoded alike.
TEST_F(Reports, R055_alibi_is_the_same_packed_and_in_a_decode) {
    const Floats slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
    const auto rules = [&](std::int64_t seqlen_q, std::int64_t seqlen_k) {
        return Rules{.bias = [&slopes, seqlen_q, seqlen_k](const Place& at) {
            const std::int64_t distance = std::abs(at.row + seqlen_k - seqlen_q - at.key);
            return -static_cast<double>(slopes[at.head]) * static_cast<double>(distance);
        }};
    };
    const Ints cu_q = {0, 3, 10}, cu_k = {0, 11, 16}, used = {11, 5};
    Call packed(DType::kF16, {.sq = 10, .sk = 16, .h = 4, .hk = 2, .d = 32});
    packed.lengths = {.cu_seqlens_q = cu_q, .cu_seqlens_k = cu_k, .max_seqlen_q = 7, .max_seqlen_k = 11};
    packed.score.alibi_slopes = slopes;
    expect_packed_backward(packed, cu_q, cu_k, rules);

    for (std::size_t n = 0; n < 2; ++n) {
        const Ints length = {used[n]};
        Call decode = sequence_of(packed, cu_q, cu_k, n);
        decode.cache.cache_seqlens = length;
        expect_decode(decode, rules(decode.q.size(1), decode.k.size(1)));
    }
}

// Documents packed into the rows of a batch of more than one, each row of the batch cut differently.
TEST_F(Reports, R063_documents_differ_between_the_rows_of_a_batch) {
    const std::vector<Ints> starts = {{0, 4, 5}, {0, 9}};  // first positions of the documents
    Ints begin(2 * 13), end(2 * 13);
    for (std::int32_t b = 0; b < 2; ++b)
        for (std::int32_t i = 0; i < 13; ++i) {
            begin[b * 13 + i] = *std::prev(std::upper_bound(starts[b].begin(), starts[b].end(), i));
            end[b * 13 + i] = i + 1;
        }
    Call call(DType::kF32, {.b = 2, .sq = 13, .sk = 13, .h = 2, .hk = 1, .d = 16});
    call.mask.key_begin = {begin, {2, 13}};
    call.mask.key_end = {end, {2, 13}};
    expect_backward(call, {.visible = [&](const Place& at) {
                        return at.key <= at.row && at.key >= begin[at.batch * 13 + at.row];
                    }});
}

}  // namespace
}  // namespace reports
