// Dropout: the decisions are those that docs/math.md defines, here by a generator of the test's own; the same in forward, backward, dense, packed and
// split calls; and a launch, not a plan, says which.
#include <map>

#include "call.hpp"

namespace reports {
namespace {

struct Philox {
    std::uint64_t seed, offset;
    float p;

    // Ten rounds of Philox4x32; the sixteen bits that belong to column j.
    std::uint32_t bits(std::int64_t batch_head, std::int64_t i, std::int64_t j) const {
        const auto low = [](std::uint64_t x) { return x & 0xffffffffu; };
        std::array<std::uint64_t, 4> c = {low(4 * (j / 32) + j % 8 / 2), low(i), low(batch_head), low(offset)};
        std::uint64_t key0 = low(seed), key1 = low((seed >> 32) + 0x9E3779B9u * (offset >> 32));
        for (int round = 0; round < 10; ++round) {
            const std::uint64_t x = 0xD2511F53u * c[0], y = 0xCD9E8D57u * c[2];
            c = {(y >> 32) ^ c[1] ^ key0, low(y), (x >> 32) ^ c[3] ^ key1, low(x)};
            key0 = low(key0 + 0x9E3779B9u);
            key1 = low(key1 + 0xBB67AE85u);
        }
        const std::int64_t number = 2 * (j % 32 / 8) + j % 2;
        return static_cast<std::uint32_t>(c[number / 2] >> (16 * (number % 2)) & 0xffff);
    }
    // The factor of P[i, j] for `heads` query heads a sequence.
    std::function<double(const Place&)> keep(std::int64_t heads, std::int64_t first_batch = 0) const {
        const auto threshold = static_cast<std::uint32_t>(std::lround(65536.0 * static_cast<double>(p)));
        const double kept = 1.0 / (1.0 - static_cast<double>(p));
        return [*this, heads, first_batch, threshold, kept](const Place& at) {
            return bits((first_batch + at.batch) * heads + at.head, at.row, at.key) < threshold ? 0.0 : kept;
        };
    }
    tilewise::Score score() const { return {.dropout_p = p, .dropout_seed = seed, .dropout_offset = offset}; }
};

// One plan, launched with another offset each time, as a training step or a graph replay does.
TEST_F(Reports, R124_each_launch_of_a_plan_brings_its_own_offset) {
    Call call(DType::kF16, {.b = 2, .sq = 64, .sk = 64, .h = 3, .hk = 3, .d = 64});
    call.score = Philox{11, 0, 0.1f}.score();
    const tilewise::Plan plan(device(), Op::kForward, call.attention(Op::kForward));
    std::map<std::uint64_t, Array> outputs;
    for (const std::uint64_t offset : {0, 4, 8, 4, 0}) {
        const Philox philox{11, offset, 0.1f};
        call.score = philox.score();
        run(plan, call.attention(Op::kForward));
        expect_outputs(call, expected_outputs(call, {.keep = philox.keep(3)}));
        const auto [before, is_new] = outputs.try_emplace(offset, call.o.contiguous_copy());
        if (!is_new) expect_same_bits(call.o, before->second, "o");
    }
}

// v as unit vectors: o is the dropped matrix P itself, so the mask can be looked at.
TEST_F(Reports, R143_the_dropout_mask_is_the_documented_one) {
    const Philox philox{0x123456789abcdef0u, (std::uint64_t{3} << 32) + 77, 0.3f};
    Call call(DType::kF32, {.b = 2, .sq = 37, .sk = 100, .h = 3, .hk = 1, .d = 4, .dv = 100});
    call.v.fill(0.0);
    for (std::int64_t j = 0; j < 100; ++j) call.v.part(1, j, 1).part(3, j, 1).fill(1.0);
    call.score = philox.score();
    const auto keep = philox.keep(3);
    on_every_kernel(Op::kForward, DType::kF32, [&](const std::string& kernel) {
        call.forward(kernel);
        std::int64_t wrong = 0, dropped = 0;
        call.o.each([&](std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t j) {
            const bool is_dropped = call.o(b, i, h, j) == 0.0;
            dropped += is_dropped;
            wrong += is_dropped != (keep({b, h, i, j}) == 0.0);
        });
        EXPECT_EQ(wrong, 0);
        EXPECT_NEAR(static_cast<double>(dropped) / static_cast<double>(call.o.count()), 0.3, 0.01);
    });
    expect_forward(call, {.keep = keep});
}

TEST_F(Reports, R144_forward_and_backward_drop_the_same_elements) {
    const Philox philox{5, 9, 0.25f};
    Call call(DType::kBF16, {.b = 2, .sq = 70, .sk = 90, .h = 4, .hk = 2, .d = 64});
    call.score = philox.score();
    call.mask.causal = true;
    expect_backward(call, {.visible = causal(70, 90), .keep = philox.keep(4)});

    const Ints cu_q = {0, 30, 70}, cu_k = {0, 50, 90};
    Call packed(DType::kF32, {.sq = 70, .sk = 90, .h = 4, .hk = 2, .d = 32});
    packed.score = philox.score();
    packed.lengths = {.cu_seqlens_q = cu_q, .cu_seqlens_k = cu_k};
    packed.forward();
    for (std::size_t n = 0; n < 2; ++n) {
        const Call one = sequence_of(packed, cu_q, cu_k, n);
        expect_outputs(one, expected_outputs(one, {.keep = philox.keep(4, static_cast<std::int64_t>(n))}));
    }
}

}  // namespace
}  // namespace reports
