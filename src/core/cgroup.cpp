// Reads cpu.max (version 2) or cpu.cfs_quota_us and cpu.cfs_period_us (version 1) of the process's group and of every group above it.
//
// /proc/self/cgroup names the group as the process sees it. In a container without a namespace of its own the path is the
// host's and the folder is not there; walking up ends at the mount point, which then is the container's group.
#include "core/cgroup.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace tilewise {
namespace {

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

double quota_v2(const std::string& folder) {
    std::istringstream line(first_line(folder + "/cpu.max"));
    double quota = 0, period = 0;
    return line >> quota >> period && quota > 0 && period > 0 ? quota / period : 0;  // "max 100000" is no number
}

double quota_v1(const std::string& folder) {
    std::istringstream quota_line(first_line(folder + "/cpu.cfs_quota_us"));
    std::istringstream period_line(first_line(folder + "/cpu.cfs_period_us"));
    double quota = 0, period = 0;
    return quota_line >> quota && period_line >> period && quota > 0 && period > 0 ? quota / period : 0;
}

// The smallest limit of `group` and the groups above it; 0: none.
double smallest_quota(const std::string& mount, std::string group, double (*quota_of)(const std::string&)) {
    double smallest = 0;
    while (true) {
        if (group == "/") group.clear();
        const double quota = quota_of(mount + group);
        if (quota > 0) smallest = smallest > 0 ? std::min(smallest, quota) : quota;
        const size_t slash = group.rfind('/');
        if (slash == std::string::npos) return smallest;
        group.resize(slash);
    }
}

// "cpu" among "cpu,cpuacct".
bool lists_cpu(const std::string& controllers) {
    std::istringstream names(controllers);
    for (std::string name; std::getline(names, name, ',');)
        if (name == "cpu") return true;
    return false;
}

}  // namespace

double cgroup_cpu_quota(const std::string& root) {
    std::ifstream groups(root + "/proc/self/cgroup");
    double smallest = 0;
    const auto take = [&](double quota) {
        if (quota > 0) smallest = smallest > 0 ? std::min(smallest, quota) : quota;
    };
    for (std::string line; std::getline(groups, line);) {  // "4:cpu,cpuacct:/path", or "0::/path" for version 2
        const size_t first = line.find(':');
        const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string group = line.substr(second + 1);
        if (controllers.empty()) {
            for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"})
                take(smallest_quota(root + mount, group, quota_v2));
        } else if (lists_cpu(controllers)) {
            for (const char* mount : {"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu"})
                take(smallest_quota(root + mount, group, quota_v1));
        }
    }
    return smallest;
}

}  // namespace tilewise
