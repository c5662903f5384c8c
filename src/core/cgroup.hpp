// The CPU time that a control group grants this process: inside a container the kernel shows every core of the host, and a
// pool with one thread a core would then be throttled.
#pragma once

#include <string>

namespace tilewise {

// CPUs of quota per period, the smallest along the path of this process's group (versions 1 and 2); 0 when nothing limits it.
// `root` is "" in production; tests pass a folder that holds proc/ and sys/.
double cgroup_cpu_quota(const std::string& root);

}  // namespace tilewise
