// Extra memory grows with the sequence length and not with its square: the workspace that plans ask for, and the peak of a process that runs a
// forward and a backward at 32k tokens.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tilewise/tilewise.hpp"

namespace tilewise {
namespace {

constexpr int64_t kHeadDim = 16;
constexpr int64_t kLong = 32768;

// One head, causal, fp32; all tensors of a forward and a backward.
struct Problem {
    explicit Problem(int64_t rows)
        : n(rows), memory(9, std::vector<float>(static_cast<size_t>(rows * kHeadDim), 0.01f)) {}

    Attention attention(bool backward) {
        const auto matrix = [&](size_t i) { return Tensor(memory[i], {1, n, 1, kHeadDim}); };
        Attention a;
        a.q = matrix(0);
        a.k = matrix(1);
        a.v = matrix(2);
        a.o = matrix(3);
        a.lse = Tensor(memory[4].data(), {1, 1, n});
        a.mask.causal = true;
        if (!backward) return a;
        a.gradients.grad_o = matrix(5);
        a.gradients.grad_q = matrix(6);
        a.gradients.grad_k = matrix(7);
        a.gradients.grad_v = matrix(8);
        return a;
    }
    int64_t n;
    std::vector<std::vector<float>> memory;
};

size_t workspace_of(Op op, int64_t rows) {
    const Device device("cpu");
    Problem problem(rows);
    return workspace_bytes(device, op, problem.attention(op == Op::kBackward));
}

TEST(Memory, WorkspaceIsLinearInTheLength) {
    for (const Op op : {Op::kForward, Op::kBackward}) {
        const size_t half = workspace_of(op, kLong / 2), whole = workspace_of(op, kLong);
        const auto bytes_of_q = static_cast<size_t>(kLong * kHeadDim) * sizeof(float);
        EXPECT_LE(whole, 2 * half + (64 << 10));
        EXPECT_LE(whole, 64 * bytes_of_q) << "more than a few copies of the inputs for each thread";
    }
}

size_t peak_resident_bytes() {
    std::FILE* file = std::fopen("/proc/self/status", "r");
    if (file == nullptr) return 0;
    char line[256];
    size_t kilobytes = 0;
    while (std::fgets(line, sizeof line, file) != nullptr)
        if (std::strncmp(line, "VmHWM:", 6) == 0) kilobytes = std::strtoull(line + 6, nullptr, 10);
    std::fclose(file);
    return kilobytes << 10;
}

// In a process of its own, whose peak nothing else has raised.
int run_in_child() {
    const Device device("cpu");
    Problem problem(kLong);
    const size_t before = peak_resident_bytes();
    forward(device, problem.attention(false));
    backward(device, problem.attention(true));
    const size_t extra = peak_resident_bytes() - before;
    const size_t scores = static_cast<size_t>(kLong) * kLong * sizeof(float);
    std::printf("extra memory at %lld tokens: %.1f MB; the scores alone would be %.0f MB\n",
                static_cast<long long>(kLong), static_cast<double>(extra) / 1e6, static_cast<double>(scores) / 1e6);
    std::fflush(stdout);
    return before > 0 && extra < scores / 32 ? 0 : 1;
}

TEST(Memory, PeakAt32kTokensIsFarBelowTheScores) {
    std::fflush(nullptr);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(run_in_child());
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace tilewise
