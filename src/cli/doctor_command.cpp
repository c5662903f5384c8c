// `tilewise doctor`: what this machine has, whether it can be used, which kernels its devices would run and why, and a self-test
// against the oracle. Every finding says what to do. Needs neither a GPU nor a driver.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "commands.hpp"
#include "device_call.hpp"
#include "doctor_checks.hpp"
#include "kernel_list.hpp"
#include "oracle.hpp"

namespace tilewise::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Sample {
    const char* op;
    const char* dtype;
};

BuildFacts build_facts() {
    BuildFacts build;
    build.header_version =
        fmt::format("{}.{}.{}", TILEWISE_VERSION_MAJOR, TILEWISE_VERSION_MINOR, TILEWISE_VERSION_PATCH);
    build.library_version = version();
    Dl_info where{};
    const auto address = reinterpret_cast<const void*>(&tilewise_version);
    if (::dladdr(address, &where) != 0 && where.dli_fname != nullptr) build.library_path = where.dli_fname;
    for (const KernelInfo& kernel : kernel_list()) {
        build.kernels.push_back(kernel.name);
        build.has_cuda_kernels = build.has_cuda_kernels || kernel.device == "cuda";
    }
    return build;
}

ProblemFlags sample_flags(const Sample& sample, int64_t seqlen) {
    ProblemFlags flags;
    flags.shape.op = sample.op;
    flags.shape.dtype = sample.dtype;
    flags.shape.seqlen_k = seqlen;
    if (flags.shape.op != std::string("decode")) flags.shape.seqlen_q = seqlen;
    flags.shape.heads = 4;
    flags.shape.heads_kv = 2;
    flags.mask.causal = true;
    return flags;
}

// The lines of a plan's text that say why the other kernels were not chosen.
std::vector<std::string> refusals_of(const Plan& plan) {
    std::vector<std::string> lines;
    std::istringstream text(plan.text());
    bool inside = false;
    for (std::string line; std::getline(text, line);) {
        if (inside) lines.push_back("not " + line.substr(line.find_first_not_of(' ')));
        inside = inside || line == "refused";
    }
    return lines;
}

// Which kernel a typical problem gets, and why the others do not.
Finding planned(const std::string& name, const Sample& sample) {
    const std::string topic = fmt::format("plan {}", name);
    const std::string what = fmt::format("{} {}", sample.op, sample.dtype);
    try {
        const Plan plan = plan_of(Device(name), make_call(sample_flags(sample, 2048), Contents::kNone));
        return {Level::kGood, topic, fmt::format("{} runs {}", what, plan.kernel()), "", refusals_of(plan)};
    } catch (const Error& error) {
        return {Level::kBroken, topic, fmt::format("{}: {}", what, error.what()),
                "`tilewise plan` shows the whole question; `tilewise info` lists the kernels"};
    }
}

// A small attention of each kind, compared with the oracle.
Finding self_test(const std::string& name, const Sample& sample) {
    const std::string topic = fmt::format("test {}", name);
    const std::string what = fmt::format("{} {}", sample.op, sample.dtype);
    const char* action = "run `tilewise verify` and report its failing cases";
    try {
        const Device device(name);
        const Call call = make_call(sample_flags(sample, 97), Contents::kRandom);
        const DeviceCall on_device(device, call);
        prepare(device, on_device.call());
        Workspace workspace(device);
        const Plan plan = plan_of(device, on_device.call());
        launch(plan, on_device.call(), workspace);
        on_device.fetch();
        const OracleCheck check = check_with_oracle(call, 1e9);
        const std::string result =
            fmt::format("{} on {}: {:.2f} of the allowed error", what, plan.kernel(), check.worst);
        if (check.passed()) return {Level::kGood, topic, result, ""};
        return {Level::kBroken, topic, fmt::format("{}, in {}", result, check.where), action};
    } catch (const Error& error) {
        return {Level::kBroken, topic, fmt::format("{}: {}", what, error.what()), action};
    }
}

// The CPU, and the GPUs that the kernels can run on. One that the driver shows and the library cannot open is a finding; a driver that
// crashed or hung in the child is not asked here.
std::vector<std::string> usable_devices(const DriverReport& driver, const BuildFacts& build, Findings* findings) {
    std::vector<std::string> names{"cpu"};
    if (!build.has_cuda_kernels || !driver.found || !driver.failure.empty()) return names;
    for (size_t i = 0; i < driver.gpus.size(); ++i) {
        if (driver.gpus[i].compute_capability < kNeededComputeCapability) continue;
        const std::string name = fmt::format("cuda:{}", i);
        try {
            const Device device(name);
            names.push_back(name);
        } catch (const Error& error) {
            findings->push_back({Level::kBroken, "gpu", error.what(), "see the findings about the driver"});
        }
    }
    return names;
}

Findings examine() {
    // First of all: the driver is asked in a child process, and a process with threads must not fork.
    const SystemView system = look_at_system("");
    const DriverReport driver = ask_cuda_driver("libcuda.so.1");
    const BuildFacts build = build_facts();
    Findings findings = check_build(build);
    const auto append = [&findings](const Findings& more) {
        findings.insert(findings.end(), more.begin(), more.end());
    };
    append(check_cpu(Device("cpu").json(), system));
    append(check_gpus(system, driver, build));
    append(check_environment(system, build));
    const std::vector<std::string> names = usable_devices(driver, build, &findings);
    for (const std::string& name : names) {
        for (const Sample& sample : {Sample{"forward", "bf16"}, Sample{"backward", "bf16"}, Sample{"decode", "bf16"}}) {
            findings.push_back(planned(name, sample));
        }
    }
    for (const std::string& name : names) {
        for (const Sample& sample :
             {Sample{"forward", "f32"}, Sample{"forward", "bf16"}, Sample{"backward", "f32"}, Sample{"decode", "f16"}})
            findings.push_back(self_test(name, sample));
    }
    return findings;
}

const char* summary_of(int exit_code) {
    return exit_code == 0   ? "good: everything that this machine has can be used"
           : exit_code == 1 ? "warnings: calls are served, but not everything that this machine has can be used"
                            : "broken: some calls fail or give wrong results";
}

void print_text(const Findings& findings) {
    for (const Finding& finding : findings) {
        fmt::print("{:<8} {:<12} {}\n", name_of(finding.level), finding.topic, finding.text);
        for (const std::string& detail : finding.details) fmt::print("{:<23} {}\n", "", detail);
        if (!finding.action.empty()) fmt::print("{:<21} -> {}\n", "", finding.action);
    }
    fmt::print("\n{}\n", summary_of(exit_code_of(findings)));
}

void print_json(const Findings& findings) {
    const int exit_code = exit_code_of(findings);
    Json json;
    json["status"] = exit_code == 0 ? "good" : exit_code == 1 ? "warnings" : "broken";
    json["findings"] = Json::array();
    for (const Finding& finding : findings) {
        json["findings"].push_back({{"level", name_of(finding.level)},
                                    {"topic", finding.topic},
                                    {"text", finding.text},
                                    {"action", finding.action},
                                    {"details", finding.details}});
    }
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("doctor", "what this machine has, whether it works, and what to do if not");
    const auto json = std::make_shared<bool>(false);
    command->add_flag("--json", *json, "machine-readable");
    command->footer("Exit code: 0 good, 1 warnings, 2 broken.");
    command->callback([json, &exit_code] {
        const Findings findings = examine();
        exit_code = exit_code_of(findings);
        if (*json)
            print_json(findings);
        else
            print_text(findings);
    });
}

}  // namespace tilewise::cli
