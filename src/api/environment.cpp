// Reads and applies the two variables of environment.hpp. They are put into the problem, and so are part of every plan's key.
#include "api/environment.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "core/registry.hpp"

namespace tilewise::api {

namespace {

struct Environment {
    const KernelRow* kernel = nullptr;
    int32_t num_threads = 0;
    Status status;  // of reading it
};

Environment read_environment() {
    Environment environment;
    if (const char* name = std::getenv("TILEWISE_FORCE_KERNEL"); name != nullptr && *name != '\0') {
        environment.kernel = default_registry().find(name);
        if (environment.kernel == nullptr)
            environment.status = Status::invalid(fmt::format(
                "TILEWISE_FORCE_KERNEL: \"{}\" is not a kernel of this build; tilewise_kernel_json lists them", name));
    }
    if (const char* text = std::getenv("TILEWISE_NUM_THREADS"); text != nullptr && *text != '\0') {
        const std::string_view digits(text);
        const auto [end, error] =
            std::from_chars(digits.data(), digits.data() + digits.size(), environment.num_threads);
        if (error != std::errc() || end != digits.data() + digits.size() || environment.num_threads < 1)
            environment.status = Status::invalid(
                fmt::format("TILEWISE_NUM_THREADS: \"{}\"; a whole number of at least 1 is allowed", text));
    }
    return environment;
}

// A decode is a forward, after an append if there are new keys.
bool serves(const KernelRow& row, const Problem& problem) {
    if (problem.op != Op::kDecode) return row.op == problem.op;
    return row.op == Op::kForward || (row.op == Op::kAppend && problem.has(Arg::kKNew));
}

}  // namespace

Status apply_environment(const DeviceInfo& device, Problem* problem) {
    static const Environment environment = read_environment();
    if (!environment.status.ok()) return environment.status;
    ExecSpec& exec = problem->exec;
    const KernelRow* row = environment.kernel;
    if (row != nullptr && exec.kernel.empty() && row->device == device.kind && serves(*row, *problem))
        exec.kernel = row->name;
    if (exec.num_threads == 0 && device.kind == DeviceKind::kCpu && !device.recorded)
        exec.num_threads = environment.num_threads;
    return {};
}

}  // namespace tilewise::api
