// The thread pool: every task runs once, workers never share a number at the same time, callers do not disturb each
// other, nested calls and forked children finish. Run under ThreadSanitizer as well.
#include "cpu/parallel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#    include <sys/wait.h>
#    include <unistd.h>
#endif

namespace tilewise::cpu {
namespace {

std::vector<int> run_and_count(int64_t num_tasks, int num_threads) {
    std::vector<int> runs(static_cast<size_t>(num_tasks), 0);
    parallel_for(num_tasks, num_threads, [&](int64_t task, int) noexcept { ++runs[static_cast<size_t>(task)]; });
    return runs;
}

TEST(Parallel, RunsEveryTaskOnce) {
    for (const int64_t tasks : {0, 1, 2, 3, 7, 64, 1000})
        for (const int threads : {0, 1, 2, 3, 8}) {
            const std::vector<int> runs = run_and_count(tasks, threads);
            EXPECT_TRUE(std::all_of(runs.begin(), runs.end(), [](int n) { return n == 1; }))
                << tasks << " tasks on " << threads << " threads";
        }
}

TEST(Parallel, NegativeAndZeroTaskCountsDoNothing) {
    int calls = 0;
    parallel_for(0, 4, [&](int64_t, int) noexcept { ++calls; });
    parallel_for(-3, 4, [&](int64_t, int) noexcept { ++calls; });
    EXPECT_EQ(calls, 0);
}

TEST(Parallel, WorkerNumbersAreInRangeAndExclusive) {
    constexpr int kThreads = 6;
    std::vector<std::atomic<int>> users(kThreads);
    std::atomic<bool> out_of_range{false}, shared{false};
    parallel_for(2000, kThreads, [&](int64_t, int worker) noexcept {
        if (worker < 0 || worker >= kThreads) {
            out_of_range = true;
            return;
        }
        if (users[static_cast<size_t>(worker)].fetch_add(1) != 0) shared = true;
        std::this_thread::yield();
        users[static_cast<size_t>(worker)].fetch_sub(1);
    });
    EXPECT_FALSE(out_of_range);
    EXPECT_FALSE(shared);
}

// Tasks that wait for each other can only finish side by side.
void meet_on_threads(int num_threads) {
    std::atomic<int> arrived{0};
    parallel_for(num_threads, num_threads, [&](int64_t, int) noexcept {
        ++arrived;
        while (arrived.load() < num_threads) std::this_thread::yield();
    });
    EXPECT_EQ(arrived.load(), num_threads);
}

TEST(Parallel, UsesMoreThanOneThread) { meet_on_threads(2); }

TEST(Parallel, NestedCallsRunInline) {
    std::atomic<int64_t> sum{0};
    std::atomic<bool> moved{false};
    parallel_for(8, 4, [&](int64_t, int) noexcept {
        const std::thread::id outer = std::this_thread::get_id();
        parallel_for(10, 4, [&](int64_t inner, int worker) noexcept {
            if (std::this_thread::get_id() != outer || worker != 0) moved = true;
            sum += inner;
        });
    });
    EXPECT_EQ(sum.load(), 8 * 45);
    EXPECT_FALSE(moved);
}

TEST(Parallel, ConcurrentCallersGetTheirOwnResults) {
    constexpr int kCallers = 5;
    std::vector<int64_t> sums(kCallers, 0);
    std::vector<std::thread> callers;
    for (size_t caller = 0; caller < kCallers; ++caller)
        callers.emplace_back([&sums, caller] {
            for (int round = 0; round < 40; ++round) {
                std::vector<int64_t> values(57, 0);
                parallel_for(57, 3, [&](int64_t task, int) noexcept { values[static_cast<size_t>(task)] = task; });
                sums[caller] += std::accumulate(values.begin(), values.end(), int64_t{0});
            }
        });
    for (std::thread& caller : callers) caller.join();
    for (const int64_t sum : sums) EXPECT_EQ(sum, 40 * 57 * 56 / 2);
}

// ThreadSanitizer does not follow threads that start in the child of a process with threads.
#if (defined(__unix__) || defined(__APPLE__)) && !defined(__SANITIZE_THREAD__)
// Whether a child process that runs `body` and exits says so. Under AddressSanitizer its exit includes a leak check:
// whatever the child inherited must still be reachable there.
template <class Body> bool child_exits_cleanly(const Body& body) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);  // a hang becomes a failure
        std::exit(body() ? 0 : 1);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Parallel, ForkedChildFinishesAndExitsCleanly) {
    const auto every_task_runs_once = [] {
        // A thread that still starts while its process forks may hold a lock of the sanitizer's allocator, which the
        // child then never gets. Threads that have met sleep, or are about to.
        meet_on_threads(4);
        const std::vector<int> runs = run_and_count(100, 4);
        return std::all_of(runs.begin(), runs.end(), [](int n) { return n == 1; });
    };
    EXPECT_TRUE(every_task_runs_once());
    EXPECT_TRUE(child_exits_cleanly(every_task_runs_once));
    EXPECT_TRUE(child_exits_cleanly([] { return true; })) << "a child that never calls";
    EXPECT_TRUE(child_exits_cleanly([&] {
        return every_task_runs_once() && child_exits_cleanly(every_task_runs_once) && every_task_runs_once();
    })) << "a child of a child";
    EXPECT_TRUE(every_task_runs_once());
}
#endif

}  // namespace
}  // namespace tilewise::cpu
