// A small thread pool: runs fn(task, worker) for every task of [0, num_tasks) on up to num_threads threads, the caller
// among them.
//
// Tasks are handed out one by one through an atomic counter, so uneven tasks balance themselves; `worker` is in [0,
// num_threads) and no two tasks run at the same time under one number, so it can index scratch memory. Threads start at
// the first call that needs them, sleep between calls and are joined at exit. Any number of user threads may call at
// once. A call from inside a task runs inline, and a child process after fork() starts its own threads, so neither can
// wait for a thread that is not there. Not OpenMP: its run-time libraries clash when a process loads two of them, as a
// Python process easily does.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tilewise::cpu {

namespace detail {
// `invoke(context, task, worker)` must not throw.
struct TaskBody {
    void (*invoke)(void* context, int64_t task, int worker);
    void* context;
};
void run_tasks(int64_t num_tasks, int num_threads, TaskBody body);
}  // namespace detail

// Returns when all tasks are done. Fewer threads than asked for may run (none could be started, fewer tasks than
// threads); the result is then the same, only later.
template <class Function> void parallel_for(int64_t num_tasks, int num_threads, Function&& fn) {
    using Body = std::remove_reference_t<Function>;
    static_assert(std::is_nothrow_invocable_v<Body&, int64_t, int>, "a task has no one to throw to: make it noexcept");
    const auto invoke = [](void* context, int64_t task, int worker) { (*static_cast<Body*>(context))(task, worker); };
    detail::run_tasks(num_tasks, num_threads, {invoke, const_cast<void*>(static_cast<const void*>(&fn))});
}

}  // namespace tilewise::cpu
