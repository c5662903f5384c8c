// A fixed team of threads that share the iterations of one loop at a time.
//
// A generated token passes some 120 short loops, so a thread that has run out of work watches for the next loop a little
// while before it sleeps: waking it up would cost as much as the loop itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace tilewise::generate {

class ThreadTeam {
public:
    // `threads` in all, the caller of `run` among them; at least 1.
    explicit ThreadTeam(int threads);
    ~ThreadTeam();
    ThreadTeam(const ThreadTeam&) = delete;
    ThreadTeam& operator=(const ThreadTeam&) = delete;

    int size() const { return static_cast<int>(workers_.size()) + 1; }

    // body(item, thread) for every item of 0 .. items - 1, in any order; returns when all are done. `body` must not throw
    // and must not call `run`. One caller at a time.
    template <typename Body> void run(std::int64_t items, Body&& body) {
        using Function = std::remove_reference_t<Body>;
        run_erased(items, {[](void* context, std::int64_t item, int thread) {
                               (*static_cast<Function*>(context))(item, thread);
                           },
                           const_cast<void*>(static_cast<const void*>(&body))});
    }

private:
    struct Loop {
        void (*call)(void* context, std::int64_t item, int thread) = nullptr;
        void* context = nullptr;
    };

    void run_erased(std::int64_t items, Loop loop);
    void work(int thread);
    void take_items(int thread);

    std::vector<std::thread> workers_;
    Loop loop_;
    std::int64_t items_ = 0;
    std::atomic<std::int64_t> next_item_{0};
    std::atomic<int> busy_{0};               // workers that have not finished the current loop
    std::atomic<std::uint32_t> started_{0};  // loops started so far
    std::atomic<bool> stop_{false};
};

}  // namespace tilewise::generate
