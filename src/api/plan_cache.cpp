// The cache of plan_cache.hpp. Failures are not kept: a refused problem is validated again, which is cheap and rare.
#include "api/plan_cache.hpp"

#include <utility>

#include "core/registry.hpp"

namespace tilewise::api {

std::shared_ptr<const Plan> PlanCache::find(size_t hash, const KnownDevice& device, const Problem& problem) {
    const auto [first, last] = by_hash_.equal_range(hash);
    for (auto found = first; found != last; ++found) {
        const Entries::iterator entry = found->second;
        if (entry->device != &device || !(entry->plan->problem == problem)) continue;
        entries_.splice(entries_.begin(), entries_, entry);
        return entry->plan;
    }
    return nullptr;
}

void PlanCache::insert(Entry entry) {
    if (entries_.size() >= capacity_) {
        const Entries::iterator oldest = std::prev(entries_.end());
        const auto [first, last] = by_hash_.equal_range(oldest->hash);
        for (auto found = first; found != last; ++found) {
            if (found->second != oldest) continue;
            by_hash_.erase(found);
            break;
        }
        entries_.pop_back();
    }
    entries_.push_front(std::move(entry));
    try {
        by_hash_.emplace(entries_.front().hash, entries_.begin());
    } catch (...) {  // no memory: both indices must tell the same
        entries_.pop_front();
        throw;
    }
}

Status PlanCache::plan_for(const KnownDevice& device, const Problem& problem, std::shared_ptr<const Plan>* plan) {
    const size_t hash = hash_of(problem);
    {
        const std::lock_guard lock(mutex_);
        *plan = find(hash, device, problem);
    }
    if (*plan != nullptr) return {};

    auto made = std::make_shared<Plan>();
    if (Status status = make_plan(problem, device.info, default_registry(), made.get()); !status.ok()) return status;
    const std::lock_guard lock(mutex_);
    *plan = find(hash, device, problem);  // another thread may have been faster
    if (*plan == nullptr) insert({hash, &device, *plan = std::move(made)});
    return {};
}

size_t PlanCache::size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
}

}  // namespace tilewise::api
