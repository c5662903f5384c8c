// More than 65,535 of anything: sequences, heads, blocks of queries. Small head_dims keep the tensors small.
#include "call.hpp"

namespace reports {
namespace {

void expect_sequence(const Call& one) {
    expect_outputs(one, expected_outputs(one));
    expect_gradients(one, expected_gradients(one));
}

// 80,000 sequences of 16 tokens whose q, k, v are packed as (total, 3, heads, d).
TEST_F(Reports, R015_80000_packed_sequences) {
    constexpr std::int32_t kSequences = 80000, kLength = 16;
    constexpr std::int64_t kTotal = std::int64_t{kSequences} * kLength;
    Ints cu(kSequences + 1);
    for (std::int32_t n = 0; n <= kSequences; ++n) cu[n] = n * kLength;
    const Array qkv = random(DType::kF16, {1, kTotal, 3, 8}, 1);
    Call call(DType::kF16, {.d = 8});
    call.q = qkv.part(2, 0, 1);
    call.k = qkv.part(2, 1, 1);
    call.v = qkv.part(2, 2, 1);
    for (Array* x : {&call.o, &call.grad.q, &call.grad.k, &call.grad.v}) *x = Array(DType::kF16, {1, kTotal, 1, 8});
    call.grad.o = Array(DType::kF16, {1, 1, 1, 1}).fill(0.5).expanded(1, kTotal).expanded(3, 8);
    call.lse = Array(DType::kF32, {1, 1, kTotal, 1});
    call.lengths = {.cu_seqlens_q = cu, .cu_seqlens_k = cu, .max_seqlen_q = kLength, .max_seqlen_k = kLength};
    call.forward();
    call.backward();
    expect_finite(call.o, "o");
    for (const std::size_t n : {0, 1, 39999, 65534, 65535, 65536, 79999}) expect_sequence(sequence_of(call, cu, cu, n));
}

TEST_F(Reports, R017_a_batch_of_65536) {
    constexpr std::int64_t kBatch = 65536;
    const Array::Axes stored{kBatch, 8, 4, 8};  // (batch, heads, length, d)
    Call call(DType::kF16, {.sq = 4, .sk = 4, .h = 8, .hk = 8, .d = 8});
    call.q = call.q.expanded(0, kBatch);
    call.k = random(DType::kF16, stored, 2).permuted({0, 2, 1, 3});
    call.v = call.k;
    call.grad.o = call.grad.o.expanded(0, kBatch);
    for (Array* x : {&call.o, &call.grad.q, &call.grad.k, &call.grad.v})
        *x = Array(DType::kF16, stored).permuted({0, 2, 1, 3});
    call.lse = Array(DType::kF32, {kBatch, 8, 4, 1});
    call.forward();
    call.backward();
    expect_finite(call.o, "o");
    for (const std::int64_t n : {0, 1, 32768, 65534, 65535}) expect_sequence(sequence_of(call, n));
}

TEST_F(Reports, R018_65536_heads) {
    constexpr std::int64_t kHeads = 65536;
    const Array::Axes stored{1, kHeads, 10, 16};
    Call call(DType::kF32, {.sq = 10, .sk = 10, .d = 16});
    call.q = call.q.expanded(2, kHeads);
    call.k = random(DType::kF32, stored, 2).permuted({0, 2, 1, 3});
    call.v = call.k;
    call.o = Array(DType::kF32, stored).permuted({0, 2, 1, 3});
    call.lse = Array(DType::kF32, {1, kHeads, 10, 1});
    call.forward();
    expect_finite(call.o, "o");
    for (const std::int64_t head : {0, 1, 65534, 65535}) {
        Call one = call;
        for (Array* x : {&one.q, &one.k, &one.v, &one.o}) *x = x->part(2, head, 1);
        one.lse = call.lse.part(1, head, 1);
        expect_outputs(one, expected_outputs(one));
    }
}

TEST_F(Reports, R018_65536_blocks_of_64_queries) {
    constexpr std::int64_t kQueries = std::int64_t{64} * 65535 + 1;
    Call call(DType::kF32, {.sq = kQueries, .sk = 3, .d = 2});
    call.forward();
    expect_finite(call.o, "o");
    for (const std::int64_t begin : {std::int64_t{0}, kQueries / 2, kQueries - 70}) {
        const Call one = sequence_of(call, {begin, begin + 70}, {0, 3});
        expect_outputs(one, expected_outputs(one));
    }
}

// One-token decode of 65,536 sequences over 64 pages of 32 rows. The reported head_dim of 576 is refused in words.
TEST_F(Reports, R020_a_paged_decode_of_65536_sequences) {
    constexpr std::int64_t kBatch = 65536;
    Ints used(kBatch), table(2 * kBatch);
    for (std::int32_t n = 0; n < kBatch; ++n) {
        used[n] = n % 65;
        table[2 * n] = n % 64;
        table[2 * n + 1] = (n * 5 + 1) % 64;
    }
    Call call(DType::kBF16, {.b = kBatch, .h = 4, .hk = 1, .d = 16, .dv = 8});
    call.k = random(DType::kBF16, {64, 32, 1, 16}, 2);
    call.v = random(DType::kBF16, {64, 32, 1, 8}, 3);
    call.cache = {.cache_seqlens = used, .page_table = {table, {kBatch, 2}}};
    call.decode();
    expect_finite(call.o, "o");
    for (const std::int64_t n : {0, 64, 100, 65534, 65535}) {
        Call one = call;
        for (Array* x : {&one.q, &one.o, &one.lse}) *x = x->part(0, n, 1);
        for (Array* x : {&one.k, &one.v}) {
            const Array gathered(DType::kBF16, {1, 64, 1, x->size(3)});
            for (std::int64_t page = 0; page < 2; ++page)
                gathered.part(1, 32 * page, 32).assign(x->part(0, table[2 * n + page], 1));
            *x = gathered.part(1, 0, used[n]);
        }
        expect_outputs(one, expected_outputs(one));
    }
    const Call wide(DType::kBF16, {.h = 64, .d = 576, .dv = 512});
    expect_invalid([&] { wide.forward(); }, "q", {"576", "256"});
}

}  // namespace
}  // namespace reports
