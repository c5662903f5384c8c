// This machine's CPU as the process may use it: instruction set, cores, caches, name.
//
// Cores are those of the affinity mask, cut to the control group's quota, because a thread more than that only takes turns with
// the others. What depends on the architecture lies in detect_isa_*.cpp.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "core/cgroup.hpp"
#include "core/detect_isa.hpp"
#include "core/device.hpp"

#if defined(__linux__)
#    include <sched.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#    include <unistd.h>
#endif

namespace tilewise {
namespace {

// Vendors pad the name with spaces.
std::string trimmed(const std::string& text) {
    const size_t first = text.find_first_not_of(" \t");
    if (first == std::string::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string cpu_name() {
    if (std::string brand = trimmed(cpu_brand()); !brand.empty()) return brand;
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        const bool names_it = line.starts_with("model name") || line.starts_with("Model");
        const size_t colon = line.find(':');
        if (names_it && colon != std::string::npos) return trimmed(line.substr(colon + 1));
    }
    return "CPU";
}

int32_t affinity_cores() {
#if defined(__linux__)
    for (int capacity = 1024; capacity <= (1 << 20); capacity *= 4) {  // the call fails while the set is too small
        cpu_set_t* const set = CPU_ALLOC(capacity);
        if (set == nullptr) break;
        const size_t bytes = CPU_ALLOC_SIZE(capacity);
        const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) return count;
    }
#endif
    return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
}

int32_t usable_cores() {
    const int32_t cores = affinity_cores();
    const double quota = cgroup_cpu_quota("");
    return quota > 0 ? std::clamp(static_cast<int32_t>(std::ceil(quota)), 1, cores) : cores;
}

// Bytes of core 0's data (or unified) cache of a level as /sys lists it; 0 when it does not.
int64_t cache_bytes_of_sys(int level) {
    for (int index = 0; index < 8; ++index) {
        const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
        int found = 0;
        std::string type, size;
        std::ifstream(folder + "/level") >> found;
        std::ifstream(folder + "/type") >> type;
        std::ifstream(folder + "/size") >> size;  // "48K"
        if (found != level || type == "Instruction" || size.empty()) continue;
        const int64_t unit = size.back() == 'K' ? 1 << 10 : size.back() == 'M' ? 1 << 20 : 1;
        return std::strtoll(size.c_str(), nullptr, 10) * unit;
    }
    return 0;
}

int64_t cache_bytes(int level, int64_t otherwise) {
#if defined(_SC_LEVEL1_DCACHE_SIZE) && defined(_SC_LEVEL2_CACHE_SIZE)
    const long known = sysconf(level == 1 ? _SC_LEVEL1_DCACHE_SIZE : _SC_LEVEL2_CACHE_SIZE);
    if (known > 0) return known;
#endif
    const int64_t listed = cache_bytes_of_sys(level);
    return listed > 0 ? listed : otherwise;
}

}  // namespace

DeviceInfo detect_cpu() {
    DeviceInfo device;
    device.kind = DeviceKind::kCpu;
    device.name = cpu_name();
    detect_isa(device.cpu);
    device.cpu.num_cores = usable_cores();
    device.cpu.l1d_bytes = cache_bytes(1, device.cpu.l1d_bytes);
    device.cpu.l2_bytes = cache_bytes(2, device.cpu.l2_bytes);
    return device;
}

}  // namespace tilewise
