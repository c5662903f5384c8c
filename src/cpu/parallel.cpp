// The pool behind parallel_for. A call is a Job on the caller's stack; sleeping workers pick the first job in the list
// that still wants helpers. One mutex guards the list and the jobs' bookkeeping, the task counter alone is lock-free.
// After fork() the child abandons its copy of the pool: its threads exist in the parent only and its mutex may be
// locked, so it can be neither used nor destroyed. It stays in a list, and no memory of the pool hangs on its threads
// alone: a leak checker in the child finds everything.
#include "cpu/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#    include <pthread.h>
#    include <unistd.h>
#else
#    include <system_error>
#    include <thread>
#endif

namespace tilewise::cpu {

namespace {

constexpr int kMaxHelpers = 1023;  // bounds a wrong num_threads, far above any machine's use

thread_local bool inside_task = false;

using ThreadBody = void* (*)(void* context);

#if defined(__unix__) || defined(__APPLE__)
int64_t process_id() { return static_cast<int64_t>(getpid()); }

// Not std::thread: it allocates a copy of what the thread runs, which only the stack of that thread owns. In a forked
// child, where that stack is no one's, the copy is lost.
using Thread = pthread_t;
bool start(Thread& thread, ThreadBody body, void* context) {
    return pthread_create(&thread, nullptr, body, context) == 0;
}
void join(Thread& thread) { pthread_join(thread, nullptr); }
#else
int64_t process_id() { return 0; }  // no fork, so the pool never has to notice one

using Thread = std::thread;
bool start(Thread& thread, ThreadBody body, void* context) {
    try {
        thread = std::thread(body, context);
        return true;
    } catch (const std::system_error&) {
        return false;
    }
}
void join(Thread& thread) { thread.join(); }
#endif

struct Job {
    detail::TaskBody body;
    int64_t num_tasks = 0;
    int wanted_helpers = 0;
    std::atomic<int64_t> next_task{0};
    // Guarded by the pool's mutex.
    int joined_helpers = 0;
    int working_helpers = 0;
    Job* next_job = nullptr;

    bool wants_help() const {
        return joined_helpers < wanted_helpers && next_task.load(std::memory_order_relaxed) < num_tasks;
    }
    void work(int worker) {
        inside_task = true;
        for (;;) {
            const int64_t task = next_task.fetch_add(1, std::memory_order_relaxed);
            if (task >= num_tasks) break;
            body.invoke(body.context, task, worker);
        }
        inside_task = false;
    }
};

class Pool {
public:
    Pool() : owner_(process_id()) {}
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;
    ~Pool() {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        work_arrived_.notify_all();
        for (Thread& thread : threads_) join(thread);
    }

    bool belongs_to_this_process() const { return owner_ == process_id(); }

    void run(Job& job) {
        {
            const std::lock_guard lock(mutex_);
            start_threads(job.wanted_helpers);
            job.next_job = first_job_;
            first_job_ = &job;
        }
        for (int i = 0; i < job.wanted_helpers; ++i) work_arrived_.notify_one();
        job.work(0);
        std::unique_lock lock(mutex_);
        remove(job);
        helper_left_.wait(lock, [&] { return job.working_helpers == 0; });
    }

    const Pool* next_abandoned = nullptr;  // in the list of what this process inherited

private:
    // More threads are a matter of speed only, so failing to start one is no error.
    void start_threads(int count) {
        try {
            while (static_cast<int>(threads_.size()) < count) {
                threads_.emplace_back();
                if (start(threads_.back(), serve_pool, this)) continue;
                threads_.pop_back();
                return;
            }
        } catch (const std::bad_alloc&) {
            return;
        }
    }

    void remove(const Job& job) {
        Job** link = &first_job_;
        while (*link != &job) link = &(*link)->next_job;
        *link = job.next_job;
    }

    Job* job_that_wants_help() const {
        Job* job = first_job_;
        while (job != nullptr && !job->wants_help()) job = job->next_job;
        return job;
    }

    static void* serve_pool(void* pool) {
        static_cast<Pool*>(pool)->serve();
        return nullptr;
    }

    void serve() {
        std::unique_lock lock(mutex_);
        for (;;) {
            Job* job = nullptr;
            work_arrived_.wait(lock, [&] { return stopping_ || (job = job_that_wants_help()) != nullptr; });
            if (stopping_) return;
            const int worker = ++job->joined_helpers;
            ++job->working_helpers;
            lock.unlock();
            job->work(worker);
            lock.lock();
            // Once this is 0 and the lock is released, the caller may return and the job is gone.
            if (--job->working_helpers == 0) helper_left_.notify_all();
        }
    }

    const int64_t owner_;
    std::mutex mutex_;
    std::condition_variable work_arrived_;
    std::condition_variable helper_left_;
    bool stopping_ = false;
    Job* first_job_ = nullptr;
    std::vector<Thread> threads_;
};

std::atomic<const Pool*> abandoned{nullptr};

void abandon(Pool* pool) {
    pool->next_abandoned = abandoned.load(std::memory_order_relaxed);
    while (!abandoned.compare_exchange_weak(pool->next_abandoned, pool, std::memory_order_release)) {}
}

struct PoolHolder {
    std::atomic<Pool*> pool{nullptr};
    ~PoolHolder() {
        Pool* last = pool.exchange(nullptr);
        if (last == nullptr) return;
        if (last->belongs_to_this_process())
            delete last;
        else
            abandon(last);
    }
};
PoolHolder holder;

Pool& current_pool() {
    Pool* pool = holder.pool.load(std::memory_order_acquire);
    if (pool != nullptr && pool->belongs_to_this_process()) return *pool;
    Pool* fresh = new Pool;
    if (holder.pool.compare_exchange_strong(pool, fresh, std::memory_order_acq_rel)) {
        if (pool != nullptr) abandon(pool);
        return *fresh;
    }
    delete fresh;  // another thread was first
    return *pool;
}

}  // namespace

void detail::run_tasks(int64_t num_tasks, int num_threads, TaskBody body) {
    const int64_t helpers = std::min<int64_t>(std::min<int64_t>(num_threads, num_tasks) - 1, kMaxHelpers);
    if (helpers <= 0 || inside_task) {
        for (int64_t task = 0; task < num_tasks; ++task) body.invoke(body.context, task, 0);
        return;
    }
    Job job;
    job.body = body;
    job.num_tasks = num_tasks;
    job.wanted_helpers = static_cast<int>(helpers);
    current_pool().run(job);
}

}  // namespace tilewise::cpu
