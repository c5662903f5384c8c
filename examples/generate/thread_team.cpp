// Every worker takes part in every loop, if only to find that no items are left: the caller then knows that none of them
// still reads the loop's body when `run` returns.
#include "thread_team.hpp"

namespace tilewise::generate {

namespace {

// About 20 microseconds of looking, the gap between two loops of one layer; past it the processor is better left to others.
constexpr int kLooks = 2000;

template <typename T> void wait_while_equal(const std::atomic<T>& value, T old) {
    for (int look = 0; look < kLooks; ++look) {
        if (value.load(std::memory_order_acquire) != old) {
            return;
        }
    }
    while (value.load(std::memory_order_acquire) == old) {
        value.wait(old, std::memory_order_acquire);
    }
}

}  // namespace

ThreadTeam::ThreadTeam(int threads) {
    for (int thread = 1; thread < threads; ++thread) {
        workers_.emplace_back([this, thread] { work(thread); });
    }
}

ThreadTeam::~ThreadTeam() {
    stop_.store(true, std::memory_order_relaxed);
    started_.fetch_add(1, std::memory_order_release);
    started_.notify_all();
    for (std::thread& worker : workers_) {
        worker.join();
    }
}

void ThreadTeam::run_erased(std::int64_t items, Loop loop) {
    loop_ = loop;
    items_ = items;
    next_item_.store(0, std::memory_order_relaxed);
    busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    started_.fetch_add(1, std::memory_order_release);
    started_.notify_all();
    take_items(0);
    for (int busy = busy_.load(std::memory_order_acquire); busy != 0; busy = busy_.load(std::memory_order_acquire)) {
        wait_while_equal(busy_, busy);
    }
}

void ThreadTeam::work(int thread) {
    std::uint32_t seen = 0;
    while (true) {
        wait_while_equal(started_, seen);
        seen = started_.load(std::memory_order_acquire);
        if (stop_.load(std::memory_order_relaxed)) {
            return;
        }
        take_items(thread);
        if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            busy_.notify_one();
        }
    }
}

void ThreadTeam::take_items(int thread) {
    for (std::int64_t item = next_item_.fetch_add(1, std::memory_order_relaxed); item < items_;
         item = next_item_.fetch_add(1, std::memory_order_relaxed)) {
        loop_.call(loop_.context, item, thread);
    }
}

}  // namespace tilewise::generate
