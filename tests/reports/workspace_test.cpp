// The workspace: its size follows the tokens and is counted in 64 bits, and a launch stays inside it.
#include "call.hpp"
#include "memory.hpp"

namespace reports {
namespace {

const auto* const kNowhere = static_cast<const tilewise::BF16*>(nullptr);

// A call of packed sequences that only a plan looks at.
tilewise::Attention packed_call(Op op, std::int64_t batch, std::int64_t total, std::int64_t longest) {
    const tilewise::Tensor tokens(kNowhere, {total, 16, 128}),
        lengths(static_cast<const std::int32_t*>(nullptr), {batch + 1});
    tilewise::Attention call{
        .q = tokens,
        .k = tokens,
        .v = tokens,
        .o = tokens,
        .lse = {static_cast<const float*>(nullptr), {16, total}},
        .lengths = {
            .cu_seqlens_q = lengths, .cu_seqlens_k = lengths, .max_seqlen_q = longest, .max_seqlen_k = longest}};
    if (op == Op::kBackward) call.gradients = {.grad_o = tokens, .grad_q = tokens, .grad_k = tokens, .grad_v = tokens};
    return call;
}

TEST_F(Reports, R014_the_workspace_of_a_backward_follows_the_tokens) {
    constexpr std::int64_t kTotal = 200000, kFp32Row = 16 * 128 * 4;
    // 20,000 sequences of ten tokens, one of which may be as long as all of them.
    const std::size_t bytes =
        tilewise::workspace_bytes(device(), Op::kBackward, packed_call(Op::kBackward, 20000, kTotal, kTotal));
    EXPECT_LT(bytes, std::size_t{4} * kTotal * kFp32Row);
    // Dense, and so large that no 32-bit count of elements or bytes holds it: (400, 10496, 4, 128) queries and twice as many heads.
    const tilewise::Tensor rows(kNowhere, {400, 10496, 8, 128});
    const std::size_t large =
        tilewise::workspace_bytes(device(), Op::kBackward,
                                  {.q = rows,
                                   .k = rows,
                                   .v = rows,
                                   .o = rows,
                                   .lse = {static_cast<const float*>(nullptr), {400, 8, 10496}},
                                   .gradients = {.grad_o = rows, .grad_q = rows, .grad_k = rows, .grad_v = rows}});
    EXPECT_GT(large, std::size_t{400} * 10496 * 8 * 4);
    EXPECT_LT(large, std::size_t{400} * 10496 * 8 * 128 * 4 * 4);
}

// lse is (heads, total tokens): many short sequences and one long one cost no padding, in the output and in the workspace.
TEST_F(Reports, R148_lse_and_workspace_do_not_follow_sequences_times_the_longest) {
    constexpr std::int64_t kTotal = 130000;
    for (const Op op : {Op::kForward, Op::kBackward}) {
        const std::size_t few = tilewise::workspace_bytes(device(), op, packed_call(op, 2, kTotal, kTotal / 2));
        const std::size_t many = tilewise::workspace_bytes(device(), op, packed_call(op, 8001, kTotal, kTotal - 8000));
        EXPECT_LT(many, 3 * few + (std::size_t{64} << 20))
            << "sequences x longest would be " << 8001 * (kTotal - 8000) * 16 * 4;
    }
    Ints cu = {0};
    for (int n = 0; n < 100; ++n) cu.push_back(cu.back() + (n == 50 ? 300 : 2));
    Call call(DType::kF32, {.sq = cu.back(), .sk = cu.back(), .h = 2, .hk = 2, .d = 8});
    call.lengths = {.cu_seqlens_q = cu, .cu_seqlens_k = cu, .max_seqlen_q = 300, .max_seqlen_k = 300};
    EXPECT_EQ(call.lse.count(), 2 * cu.back());
    expect_packed_forward(call, cu, cu, [](auto...) { return Rules{}; });
}

// The page behind the workspace cannot be touched.
TEST_F(Reports, R076_nothing_past_the_workspace_is_touched) {
    const Ints cu_q = {0, 1, 9, 10, 75}, cu_k = {0, 700, 720, 720, 1801}, used = {1500, 3};
    Call packed(DType::kBF16, {.sq = 75, .sk = 1801, .h = 6, .hk = 2, .d = 72, .dv = 40});
    packed.lengths = {.cu_seqlens_q = cu_q, .cu_seqlens_k = cu_k, .max_seqlen_q = 65, .max_seqlen_k = 1081};
    Call cached(DType::kBF16, {.b = 2, .sk = 1800, .h = 6, .hk = 2, .d = 72, .dv = 40});
    cached.cache.cache_seqlens = used;
    const auto run = [](const Call& call, Op op, decltype(tilewise::forward)* operation, const std::string& kernel) {
        const tilewise::Attention attention = call.attention(op, kernel);
        const GuardedMemory workspace(tilewise::workspace_bytes(device(), op, attention));
        operation(device(), attention, std::span(workspace.data(), workspace.size()));
        EXPECT_TRUE(workspace.is_intact());
    };
    for (const std::int32_t threads : {1, 3})
        for (const std::int32_t splits : {0, 1, 2, 5, 33}) {
            packed.options = cached.options = {.num_splits = splits, .num_threads = threads};
            for (const std::string& kernel : kernels_of(Op::kForward, DType::kBF16)) {
                if (splits > 1 && kernel.find("tiled") == std::string::npos) continue;  // the reference has no splits
                run(packed, Op::kForward, tilewise::forward, kernel);
                run(cached, Op::kDecode, tilewise::decode, kernel);
            }
        }
    packed.options = {};
    packed.forward();
    for (const std::int32_t threads : {1, 3}) {
        packed.options.num_threads = threads;
        for (const std::string& kernel : kernels_of(Op::kBackward, DType::kBF16))
            run(packed, Op::kBackward, tilewise::backward, kernel);
    }
}

}  // namespace
}  // namespace reports
