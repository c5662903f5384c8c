// Thousands of random problems through the public API: each result equals the oracle's, or the call is refused by a message that names an argument.
//
//   TILEWISE_RANDOM_COUNT  problems (20000)
//   TILEWISE_RANDOM_SEED   seed of the first one; the others follow (1)
//   TILEWISE_TEST_DEVICE   whose kernels are tested (cpu)
// The seed is printed first, and a failure prints its own: TILEWISE_RANDOM_SEED=<it> TILEWISE_RANDOM_COUNT=1 repeats it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "conformance/random_problem.hpp"

namespace tilewise::conformance {
namespace {

uint64_t number_from(const char* variable, uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Tally {
    std::atomic<uint64_t> next{0}, right{0}, refused{0};
    std::mutex mutex;
    std::vector<std::string> faults;
};

void work(const Device& device, uint64_t first_seed, uint64_t count, Tally& tally) {
    using Kind = RandomVerdict::Kind;
    for (;;) {
        const uint64_t index = tally.next.fetch_add(1);
        if (index >= count) return;
        const RandomVerdict verdict = check_random_problem(device, first_seed + index);
        if (verdict.kind == Kind::kRight) ++tally.right;
        if (verdict.kind == Kind::kRefused) ++tally.refused;
        const std::lock_guard lock(tally.mutex);
        if (verdict.kind == Kind::kWrong) tally.faults.push_back(verdict.message);
        if (count >= 10 && (index + 1) % (count / 10) == 0) {
            std::printf("  %llu of %llu problems, %zu wrong\n", static_cast<unsigned long long>(index + 1),
                        static_cast<unsigned long long>(count), tally.faults.size());
            std::fflush(stdout);
        }
    }
}

TEST(Random, ResultsAreRightOrRefusalsNameAnArgument) {
    const uint64_t count = number_from("TILEWISE_RANDOM_COUNT", 20000), seed = number_from("TILEWISE_RANDOM_SEED", 1);
    std::printf("%llu problems from TILEWISE_RANDOM_SEED=%llu\n", static_cast<unsigned long long>(count),
                static_cast<unsigned long long>(seed));
    std::fflush(stdout);
    const char* device_name = std::getenv("TILEWISE_TEST_DEVICE");
    const Device device(device_name != nullptr ? device_name : "cpu");
    Tally tally;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
        threads.emplace_back([&] { work(device, seed, count, tally); });
    for (std::thread& thread : threads) thread.join();
    const size_t shown = std::min<size_t>(tally.faults.size(), 20);
    for (size_t i = 0; i < shown; ++i) ADD_FAILURE() << tally.faults[i];
    EXPECT_TRUE(tally.faults.empty()) << tally.faults.size() << " problems are wrong";
    EXPECT_EQ(tally.right + tally.refused + tally.faults.size(), count);
    // About one problem in ten is broken on purpose; with a kernel that this machine cannot run, a few more are refused.
    if (count >= 1000) {
        EXPECT_GT(tally.right.load(), count / 3);
    }
    std::printf("%llu right, %llu refused\n", static_cast<unsigned long long>(tally.right.load()),
                static_cast<unsigned long long>(tally.refused.load()));
}

}  // namespace
}  // namespace tilewise::conformance
