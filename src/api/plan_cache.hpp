// Plans of the one-call forms, kept by (problem, device): the least recently used one leaves when the cache is full. One lock guards the
// list; it is held for a look-up and never while planning, so two threads may plan the same problem once each.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "api/devices.hpp"
#include "core/plan.hpp"

namespace tilewise::api {

class PlanCache {
public:
    explicit PlanCache(size_t capacity) : capacity_(capacity) {}

    // The kept plan, or a new one, which is then kept. Plans that the cache has dropped live as long as their users hold them.
    Status plan_for(const KnownDevice& device, const Problem& problem, std::shared_ptr<const Plan>* plan);
    size_t size() const;

private:
    struct Entry {
        size_t hash;
        const KnownDevice* device;
        std::shared_ptr<const Plan> plan;  // its problem is the key
    };
    using Entries = std::list<Entry>;  // most recently used first

    // Need the lock.
    std::shared_ptr<const Plan> find(size_t hash, const KnownDevice& device, const Problem& problem);
    void insert(Entry entry);

    const size_t capacity_;
    mutable std::mutex mutex_;
    Entries entries_;
    std::unordered_multimap<size_t, Entries::iterator> by_hash_;
};

}  // namespace tilewise::api
