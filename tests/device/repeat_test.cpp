// The same launch gives the same bits: forward, decode and lse always, dK and dV always, dQ where deterministic is asked for. And they are
// right: the CPU says the same to rounding.
#include "problems.hpp"

namespace gpu_test {
namespace {

using tilewise::Op;
constexpr int kRepeats = 50;

// Long enough for many blocks to meet in one dQ.
Sizes long_sizes() {
    Sizes sizes;
    sizes.sq = sizes.sk = 1031;
    return sizes;
}

TEST(DeviceRepeat, AForwardRepeatsBitwise) {
    TILEWISE_NEEDS_GPUS(1);
    const tilewise::Device device("cuda:0");
    for (const int32_t splits : {0, 1, 4}) {
        Forward forward(device, 1);
        forward.call.options.num_splits = splits;
        const Planned planned(device, Op::kForward, forward.call);
        planned.launch(forward.call);
        const Bits o = bits_of(forward.o.get());
        const std::vector<float> lse = forward.lse.get();
        for (int i = 1; i < kRepeats; ++i) {
            forward.o.clear();
            planned.launch(forward.call);
            ASSERT_EQ(bits_of(forward.o.get()), o) << "launch " << i << " with splits " << splits;
            ASSERT_EQ(forward.lse.get(), lse);
        }
    }
}

TEST(DeviceRepeat, ADecodeRepeatsBitwise) {
    TILEWISE_NEEDS_GPUS(1);
    const tilewise::Device device("cuda:0");
    Decode decode(device, 2);
    const Planned planned(device, Op::kDecode, decode.call);
    planned.launch(decode.call);
    const Bits o = bits_of(decode.o.get());
    for (int i = 1; i < kRepeats; ++i) {  // the same token again: it overwrites its own keys
        decode.o.clear();
        planned.launch(decode.call);
        ASSERT_EQ(bits_of(decode.o.get()), o) << "launch " << i;
    }
}

// Counters in the workspace carry a tag, so that a launch needs no clearing. What was written over a part of one must not leave the tag beside
// a count that is not 0.
template <class Call> void expect_same_bits_in_used_workspaces(const tilewise::Device& device, Op op, Call& call) {
    const Planned planned(device, op, call.call);
    planned.launch(call.call);
    const Bits o = bits_of(call.o.get());
    const uint64_t number = 5, nothing = 0, all = ~uint64_t{0};
    for (const uint64_t* word : {&number, &nothing, &all})
        for (const size_t count : {1, 2, 4, 8}) {
            planned.reuse_workspace(word, count);
            for (int i = 0; i < 2; ++i) {
                call.o.clear();
                planned.launch(call.call);
                ASSERT_EQ(bits_of(call.o.get()), o) << count << " bytes of " << *word << ", launch " << i;
            }
        }
}
TEST(DeviceRepeat, AWorkspaceMayBeUsedByOthersInBetween) {
    TILEWISE_NEEDS_GPUS(1);
    const tilewise::Device device("cuda:0");
    Sizes many;
    many.b = 64;  // more row tiles than a GPU has multiprocessors
    many.h = 24;
    for (const Sizes& sizes : {Sizes{}, many}) {
        Forward forward(device, 9, sizes);
        expect_same_bits_in_used_workspaces(device, Op::kForward, forward);
    }
    Decode decode(device, 2);
    expect_same_bits_in_used_workspaces(device, Op::kDecode, decode);
}

TEST(DeviceRepeat, ADeterministicBackwardRepeatsBitwise) {
    TILEWISE_NEEDS_GPUS(1);
    const tilewise::Device device("cuda:0");
    const Forward forward(device, 4, long_sizes());
    Planned(device, Op::kForward, forward.call).launch(forward.call);
    tilewise::synchronize(device);
    for (const bool deterministic : {false, true}) {
        Backward backward(device, forward, 8);
        backward.call.options.deterministic = deterministic;
        const Planned planned(device, Op::kBackward, backward.call);
        planned.launch(backward.call);
        const Bits grad_q = bits_of(backward.grad_q.get()), grad_k = bits_of(backward.grad_k.get()),
                   grad_v = bits_of(backward.grad_v.get());
        for (int i = 1; i < kRepeats; ++i) {
            for (Array<tilewise::BF16>* gradient : {&backward.grad_q, &backward.grad_k, &backward.grad_v})
                gradient->clear();
            planned.launch(backward.call);
            ASSERT_EQ(bits_of(backward.grad_k.get()), grad_k) << "launch " << i;
            ASSERT_EQ(bits_of(backward.grad_v.get()), grad_v) << "launch " << i;
            const Bits again = bits_of(backward.grad_q.get());
            ASSERT_TRUE(!deterministic || again == grad_q) << "launch " << i;
        }
    }
}

TEST(DeviceRepeat, TheCpuAgrees) {
    TILEWISE_NEEDS_GPUS(1);
    const tilewise::Device gpu("cuda:0"), cpu("cpu");
    Forward here(cpu, 6), there(gpu, 6);
    tilewise::forward(cpu, here.call);
    Planned(gpu, Op::kForward, there.call).launch(there.call);
    expect_close(there.o.get(), here.o.get());
    Backward back_here(cpu, here, 7), back_there(gpu, there, 7);
    tilewise::backward(cpu, back_here.call);
    Planned(gpu, Op::kBackward, back_there.call).launch(back_there.call);
    expect_close(back_there.grad_q.get(), back_here.grad_q.get(), 0.1f);
    expect_close(back_there.grad_k.get(), back_here.grad_k.get(), 0.1f);
    expect_close(back_there.grad_v.get(), back_here.grad_v.get(), 0.1f);
}

}  // namespace
}  // namespace gpu_test
