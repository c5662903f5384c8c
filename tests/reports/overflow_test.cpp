// Offsets past 2^31 and 2^32 elements, reached by strides: the tensors lie in address space of the reported size, and only the pages of the
// elements that count are touched.
#include "call.hpp"
#include "memory.hpp"

namespace reports {
namespace {

constexpr std::int64_t k2To31 = std::int64_t{1} << 31;

// 8300 * 128 * 16 * 128 > 2^31: one query and one key a sequence, whose rows a kernel may pad to 128.
TEST_F(Reports, R001_backward_of_8300_sequences_of_one_row) {
    static_assert(8300 * std::int64_t{128} * 16 * 128 > k2To31);
    Call call(DType::kBF16, {.b = 1, .h = 16, .hk = 16, .d = 128});
    call.q = call.q.expanded(0, 8300);
    call.k = call.k.expanded(0, 8300);
    call.grad.o = Array(DType::kBF16, {1, 1, 1, 1}).fill(1.0).expanded(0, 8300).expanded(2, 16).expanded(3, 128);
    call.v = random(DType::kBF16, call.q.shape(), 3);
    for (Array* x : {&call.o, &call.grad.q, &call.grad.k, &call.grad.v}) *x = Array(DType::kBF16, call.q.shape());
    call.lse = Array(DType::kF32, {8300, 16, 1, 1});
    call.forward();
    expect_same_bits(call.o, call.v, "o");
    call.backward();
    expect_at_most(call.grad.q, 1e-3, "grad_q");
    expect_at_most(call.grad.k, 1e-3, "grad_k");
    expect_all(call.grad.v, 1.0, "grad_v");
}

// All tensors of a call with sequences as far apart as 128 padded rows of 16 heads of 128.
TEST_F(Reports, R002_backward_of_15000_sequences) {
    constexpr std::int64_t kBatch = 15000, kStride = 128 * 16 * 128;
    const SparseMemory memory(kBatch * kStride * 2);
    Call call(DType::kBF16, {.b = 1, .sq = 3, .sk = 3, .h = 2, .hk = 2, .d = 8});
    std::int64_t offset = 0;
    for (Array* x : {&call.q, &call.k, &call.v, &call.o, &call.grad.o, &call.grad.q, &call.grad.k, &call.grad.v}) {
        *x = Array(DType::kBF16, {kBatch, 3, 2, 8}, {kStride, 16, 8, 1}, memory.at<std::uint16_t>(offset));
        offset += 48;
    }
    call.lse = Array(DType::kF32, {kBatch, 2, 3, 1});
    unsigned seed = 0;
    for (const Array& x : {call.q, call.k, call.v, call.grad.o}) x.randomize(++seed);
    call.forward();
    call.backward();
    for (const std::int64_t n : {std::int64_t{0}, k2To31 / kStride - 1, k2To31 / kStride, kBatch - 1}) {
        const Call one = sequence_of(call, n);
        expect_outputs(one, expected_outputs(one));
        expect_gradients(one, expected_gradients(one));
    }
    for (const Array& grad : {call.grad.q, call.grad.k, call.grad.v}) expect_finite(grad, "gradient");
}

// Tensors stored (batch, heads, length, d) = (400, 4, 10496, 128): two queries of each head are attended to, at the reported strides.
TEST_F(Reports, R004_backward_of_a_query_tensor_past_2_31_elements) {
    constexpr std::int64_t kHead = 10496 * 128, kKeyHead = 128 * 128;
    static_assert(400 * 4 * kHead > k2To31);
    const SparseMemory queries(400 * 4 * kHead * 2), keys(400 * 4 * kKeyHead * 2);
    Call call(DType::kBF16, {.b = 1, .sq = 2, .sk = 3, .h = 4, .hk = 4, .d = 128});
    std::int64_t row = 0;  // each tensor starts at a row of its own
    for (Array* x : {&call.q, &call.o, &call.grad.o, &call.grad.q})
        *x = Array(DType::kBF16, {400, 2, 4, 128}, {4 * kHead, 128, kHead, 1},
                   queries.at<std::uint16_t>(2 * row++ * 128));
    row = 0;
    for (Array* x : {&call.k, &call.v, &call.grad.k, &call.grad.v})
        *x = Array(DType::kBF16, {400, 3, 4, 128}, {4 * kKeyHead, 128, kKeyHead, 1},
                   keys.at<std::uint16_t>(3 * row++ * 128));
    call.lse = Array(DType::kF32, {400, 4, 2, 1});
    unsigned seed = 0;
    for (const Array& x : {call.q, call.k, call.v, call.grad.o}) x.randomize(++seed);
    call.forward();
    call.backward();
    for (const std::int64_t n : {0, 199, 398, 399}) {
        const Call one = sequence_of(call, n);
        expect_outputs(one, expected_outputs(one));
        expect_gradients(one, expected_gradients(one));
    }
    expect_finite(call.grad.q, "grad_q");
}

// (1600, 16, 729, 72), where 729 is meant to be the length: served as what it says, and the plan asks.
TEST_F(Reports, R005_a_large_batch_whose_layout_looks_swapped) {
    const auto* const nowhere = static_cast<const tilewise::BF16*>(nullptr);
    const tilewise::Tensor whole(nowhere, {1600, 16, 729, 72});
    const tilewise::Plan plan(device(), Op::kForward, {.q = whole, .k = whole, .v = whole, .o = whole});
    EXPECT_NE(plan.text().find("did you pass (batch, heads, length, dim)"), std::string::npos) << plan.text();

    const Array::Axes strides{16 * 729 * 72, 729 * 72, 72, 1};
    const SparseMemory memory(1600 * strides[0] * 2);
    Call call(DType::kBF16, {.b = 1600, .sq = 16, .sk = 16, .h = 2, .hk = 2, .d = 72});
    std::int64_t head = 0;
    for (Array* x : {&call.q, &call.k, &call.v})
        *x = Array(DType::kBF16, call.o.shape(), strides, memory.at<std::uint16_t>(300 * head++ * 72));
    for (const Array& x : {call.q, call.k, call.v})
        for (const std::int64_t n : {0, 1599}) x.part(0, n, 1).randomize(static_cast<unsigned>(n));
    call.forward();
    for (const std::int64_t n : {0, 1599}) expect_outputs(sequence_of(call, n), expected_outputs(sequence_of(call, n)));
    expect_all(call.o.part(0, 1, 1598), 0.0, "o");
}

// Keys and values stored (length, batch, d) with 700 sequences, so that key 23999 lies past 2^31; sequences 0 and 1 are attended to.
TEST_F(Reports, R011_backward_of_keys_stored_length_first) {
    constexpr std::int64_t kKeys = 24000, kRow = 700 * 128;
    static_assert((kKeys - 1) * kRow > k2To31 - 1);
    const SparseMemory memory(kKeys * kRow * 2);
    Call call(DType::kBF16, {.b = 2, .sq = 5, .sk = 1, .d = 128});
    std::int64_t place = 0;
    for (Array* x : {&call.k, &call.v, &call.grad.k, &call.grad.v})
        *x = Array(DType::kBF16, {2, kKeys, 1, 128}, {128, kRow, 128, 1}, memory.at<std::uint16_t>(2 * 128 * place++));
    call.k.randomize(2);
    call.v.randomize(3);
    call.forward();
    call.backward();
    expect_outputs(call, expected_outputs(call));
    expect_gradients(call, expected_gradients(call));
}

// 32 sequences of 350,000 keys and 12 heads: the last one's row is what it is alone. A window keeps the work to the last keys.
TEST_F(Reports, R013_a_row_is_the_same_in_a_batch_of_32_and_alone) {
    constexpr std::int64_t kKeys = 350000, kRow = 768, kSeen = 650, kQueries = 50;
    const SparseMemory keys(32 * kKeys * kRow * 2), values(32 * kKeys * kRow * 2);
    Call call(DType::kBF16, {.b = 32, .sq = kQueries, .sk = 1, .h = 12, .hk = 12, .d = 64});
    const Array::Axes shape{32, kKeys, 12, 64};
    call.k = Array(DType::kBF16, shape, Array::contiguous(shape), keys.data());
    call.v = Array(DType::kBF16, shape, Array::contiguous(shape), values.data());
    for (const Array& x : {call.k, call.v})
        for (const std::int64_t n : {0, 31})
            x.part(0, n, 1).part(1, kKeys - kSeen, kSeen).randomize(static_cast<unsigned>(n));
    call.mask.window_left = kSeen - kQueries;
    call.options.batch_invariant = true;
    call.forward();
    const Array in_batch = call.o.part(0, 31, 1).contiguous_copy();
    Call alone = sequence_of(call, 31);
    alone.forward();
    expect_same_bits(alone.o, in_batch, "o");
    alone.k = alone.k.part(1, kKeys - kSeen, kSeen);
    alone.v = alone.v.part(1, kKeys - kSeen, kSeen);
    expect_outputs(alone, expected_outputs(alone, {.visible = band(kQueries, kSeen, {.left = kSeen - kQueries})}));
}

}  // namespace
}  // namespace reports
