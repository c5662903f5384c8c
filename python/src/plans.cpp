// See plans.hpp. A full cache forgets its oldest plan: problems that come back do so soon, and a plan costs microseconds.
#include "plans.hpp"

#include <array>
#include <cstdio>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tilewise::python {

namespace {

using Key = std::vector<std::int64_t>;

struct Hash {
    size_t operator()(const Key& key) const noexcept {
        std::uint64_t hash = key.size();
        for (const std::int64_t word : key) {
            hash = (hash ^ static_cast<std::uint64_t>(word)) * 0x9e3779b97f4a7c15u;
            hash ^= hash >> 29;
        }
        return hash;
    }
};

constexpr size_t kCapacity = 1024;

struct PlanTable {
    std::unordered_map<Key, std::shared_ptr<const Plan>, Hash> plans;
    std::deque<Key> order;
    Key key;       // of the call at hand; keeps its memory from call to call
    Key last_key;  // most calls are like the one before: one layer of a model after the other
    std::shared_ptr<const Plan> last;
};

// Never destroyed: a daemon thread may still launch while the process ends.
PlanTable& table() {
    static PlanTable* const instance = new PlanTable;
    return *instance;
}

constexpr size_t kFastDevices = 64;

// The device that tensors are on, without a look-up by name.
const tilewise_device* device_of(const dlpack::Device& device) {
    static const tilewise_device* cpu = nullptr;
    static std::array<const tilewise_device*, kFastDevices> gpus{};
    if (device.type == dlpack::kCpu) {
        if (cpu == nullptr) cpu = python::device_of("cpu");
        return cpu;
    }
    const auto index = static_cast<size_t>(device.id);
    if (index < kFastDevices && gpus[index] != nullptr) return gpus[index];
    char name[32];
    std::snprintf(name, sizeof name, "cuda:%d", static_cast<int>(device.id));
    const tilewise_device* found = python::device_of(name);
    if (index < kFastDevices) gpus[index] = found;
    return found;
}

const tilewise_device* device_of(const Call& call) {
    if (call.device_name == nullptr) return device_of(call.device);
    if (!PyUnicode_Check(call.device_name)) {
        refuse_type("device", "a name", call.device_name);
        return nullptr;
    }
    const Ref utf8(PyUnicode_AsUTF8String(call.device_name));
    return utf8 ? python::device_of(PyBytes_AsString(utf8.get())) : nullptr;
}

std::shared_ptr<const Plan> make_plan(const tilewise_device* device, const Call& call) {
    tilewise_plan* plan = nullptr;
    const tilewise_status status = call.op == TILEWISE_COMBINE
                                       ? tilewise_plan_create_combine(device, &call.combination, &plan)
                                       : tilewise_plan_create(device, call.op, &call.attention, &plan);
    if (!raise(status)) return nullptr;
    return std::make_shared<const Plan>(plan);
}

void remember(PlanTable& known, const Key& key, const std::shared_ptr<const Plan>& plan) {
    if (known.order.size() >= kCapacity) {
        known.plans.erase(known.order.front());
        known.order.pop_front();
    }
    known.order.push_back(key);
    known.plans.emplace(key, plan);
}

std::shared_ptr<const Plan> known_or_new(PlanTable& known, const tilewise_device* device, const Call& call) {
    if (const auto found = known.plans.find(known.key); found != known.plans.end()) return found->second;
    std::shared_ptr<const Plan> plan = make_plan(device, call);
    if (plan != nullptr) remember(known, known.key, plan);
    return plan;
}

}  // namespace

bool raise(tilewise_status status) {
    PyObject* type = PyExc_RuntimeError;
    switch (status) {
    case TILEWISE_OK: return true;
    case TILEWISE_INVALID_ARGUMENT: type = PyExc_ValueError; break;
    case TILEWISE_UNSUPPORTED: type = PyExc_NotImplementedError; break;
    case TILEWISE_OUT_OF_MEMORY: type = PyExc_MemoryError; break;
    default: break;
    }
    PyErr_SetString(type, tilewise_last_error());
    return false;
}

const tilewise_device* device_of(const char* name) {
    static auto* const known = new std::unordered_map<std::string, tilewise_device*>;
    const bool is_current_gpu = std::string_view(name) == "cuda";  // another one whenever the thread's current GPU is
    if (const auto found = known->find(name); found != known->end() && !is_current_gpu) return found->second;
    tilewise_device* device = nullptr;
    if (!raise(tilewise_device_open(name, &device))) return nullptr;
    tilewise_device*& kept = (*known)[name];
    tilewise_device_close(kept);
    return kept = device;
}

std::shared_ptr<const Plan> plan_of(const Call& call) {
    const tilewise_device* device = device_of(call);
    if (device == nullptr) return nullptr;
    PlanTable& known = table();
    known.key.clear();
    known.key.push_back(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(device)));
    append_key(call, &known.key);
    if (known.last != nullptr && known.key == known.last_key) return known.last;
    std::shared_ptr<const Plan> plan = known_or_new(known, device, call);
    if (plan != nullptr) {
        known.last_key.swap(known.key);
        known.last = plan;
    }
    return plan;
}

size_t num_cached_plans() { return table().plans.size(); }

}  // namespace tilewise::python
