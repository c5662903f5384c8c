// Each check ends in findings that say what is the case and what to do about it.
#include "doctor_checks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tilewise::cli {
namespace {

constexpr const char* kContainerAdvice = "in a container, start it with access to the GPUs (docker: --gpus all)";
constexpr const char* kCpuServes = "until then every call runs on the CPU";

std::string dotted(int number, int divisor) { return fmt::format("{}.{}", number / divisor, number % divisor); }
std::string cuda_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// What the error codes of cuInit mean to someone who wants to use a GPU.
Finding init_finding(int code) {
    const auto warning = [&](const std::string& what, const std::string& action) {
        return Finding{Level::kWarning, "driver", fmt::format("the driver does not start: {} (error {})", what, code),
                       action};
    };
    switch (code) {
    case 100: return warning("it finds no GPU", fmt::format("check CUDA_VISIBLE_DEVICES; {}", kContainerAdvice));
    case 803:
        return warning("library and kernel module have different versions",
                       "reboot after a driver update, or install both from one package");
    case 804:
        return warning("the compatibility package does not support this GPU",
                       fmt::format("install driver {} itself instead of cuda-compat", kNeededDriver));
    default:
        return warning("unknown reason", "see `dmesg | grep -i nvidia`; reloading the driver or a reboot often helps");
    }
}

// GPUs that are in the machine while the driver is not. Empty: nothing is wrong here.
Findings without_driver(const SystemView& system) {
    Findings findings;
    for (const PciGpu& gpu : system.gpus) {
        if (gpu.driver == "nvidia") {
            findings.push_back({Level::kWarning, "gpu",
                                fmt::format("NVIDIA GPU at {}: its driver runs, but not for this process", gpu.address),
                                fmt::format("{}; {}", kContainerAdvice, kCpuServes)});
        } else {
            const std::string bound = gpu.driver.empty() ? "no driver" : gpu.driver;
            findings.push_back({Level::kWarning, "gpu",
                                fmt::format("NVIDIA GPU at {}: bound to {}", gpu.address, bound),
                                fmt::format("install the NVIDIA driver {} or newer; {}; {}", kNeededDriver,
                                            kContainerAdvice, kCpuServes)});
        }
    }
    return findings;
}

void check_access(const SystemView& system, Findings& findings) {
    if (system.is_wsl) return;
    if (!system.has_control_node || system.num_nodes == 0) {
        findings.push_back({Level::kWarning, "gpu",
                            fmt::format("driver {} is loaded, but /dev has no GPU nodes", system.driver_version),
                            fmt::format("{}; on the host, `nvidia-modprobe -u -c=0` makes them", kContainerAdvice)});
    } else if (!system.can_open_nodes) {
        findings.push_back({Level::kWarning, "gpu", "/dev/nvidia* cannot be opened by this user",
                            "give the user read and write access (often: membership in the group video or render)"});
    }
}

void check_driver(const SystemView& system, const DriverReport& driver, Findings& findings) {
    const std::string update = fmt::format("install driver {} or newer; {}", kNeededDriver, kCpuServes);
    if (!driver.failure.empty()) {
        findings.push_back({Level::kWarning, "driver",
                            fmt::format("libcuda.so.1 was asked for its GPUs: {}", driver.failure),
                            "reinstall the driver; see `dmesg`"});
    } else if (!driver.found) {
        findings.push_back(
            {Level::kWarning, "driver", fmt::format("libcuda.so.1 cannot be loaded: {}", driver.load_error),
             fmt::format(
                 "install the driver's user libraries (Debian: libcuda1) of the version of the kernel module; {}",
                 kContainerAdvice)});
    } else if (driver.cuda_version < kNeededCuda) {
        const std::string name = system.driver_version.empty() ? "the driver" : "driver " + system.driver_version;
        findings.push_back({Level::kWarning, "driver",
                            fmt::format("{} runs programs up to CUDA {}; {} and driver {} are needed", name,
                                        cuda_text(driver.cuda_version), cuda_text(kNeededCuda), kNeededDriver),
                            update});
    } else {
        findings.push_back({Level::kGood, "driver",
                            fmt::format("{}CUDA {}; needed are {} and CUDA {}",
                                        system.driver_version.empty() ? "" : system.driver_version + ", ",
                                        cuda_text(driver.cuda_version), kNeededDriver, cuda_text(kNeededCuda)),
                            ""});
    }
    if (driver.found && driver.init_error != 0) findings.push_back(init_finding(driver.init_error));
}

Finding gpu_finding(const DriverGpu& gpu, size_t index, const BuildFacts& build) {
    const std::string what = fmt::format("cuda:{} {}, compute capability {}, {:.0f} GiB", index, gpu.name,
                                         dotted(gpu.compute_capability, 10), gpu.memory_gib);
    if (gpu.compute_capability < kNeededComputeCapability) {
        return {Level::kWarning, "gpu",
                fmt::format("{}: older than {}, which the kernels need", what, dotted(kNeededComputeCapability, 10)),
                "use the CPU, or a GPU of the Ampere generation or newer"};
    }
    if (!build.has_cuda_kernels) {
        return {Level::kWarning, "gpu", what + ": this build has no CUDA kernels, so nothing runs on it",
                "use the CPU; `tilewise plan --device` shows what recorded GPUs would run"};
    }
    return {Level::kGood, "gpu", what, ""};
}

void check_hidden(const SystemView& system, Findings& findings) {
    const auto hidden = system.environment.find("CUDA_VISIBLE_DEVICES");
    if (hidden == system.environment.end()) return;
    const bool all = hidden->second.empty() || hidden->second.starts_with("-1");
    findings.push_back({all ? Level::kWarning : Level::kNote, "environment",
                        fmt::format("CUDA_VISIBLE_DEVICES=\"{}\" {}", hidden->second,
                                    all ? "hides every GPU" : "chooses and renumbers the GPUs"),
                        all ? "unset it to use them" : ""});
}

}  // namespace

const char* name_of(Level level) {
    switch (level) {
    case Level::kGood: return "good";
    case Level::kNote: return "note";
    case Level::kWarning: return "warning";
    case Level::kBroken: return "broken";
    }
    return "unknown";
}

Findings check_build(const BuildFacts& build) {
    if (build.library_version != build.header_version) {
        return {{Level::kBroken, "library",
                 fmt::format("{} is version {}, but this program was built for {}", build.library_path,
                             build.library_version, build.header_version),
                 "reinstall both together, or correct LD_LIBRARY_PATH"}};
    }
    return {{Level::kGood, "library",
             fmt::format("tilewise {}, {} kernels{}, {}", build.library_version, build.kernels.size(),
                         build.has_cuda_kernels ? "" : ", none of them for GPUs yet", build.library_path),
             ""}};
}

Findings check_cpu(const std::string& cpu, const SystemView& system) {
    const nlohmann::json json = nlohmann::json::parse(cpu);
    const auto cores = json.at("num_cores").get<int>();
    const std::string isa = json.at("isa");
    const std::string what =
        fmt::format("{}, {} core{}, {}", json.at("name").get<std::string>(), cores, cores == 1 ? "" : "s", isa);
    Findings findings;
    if (isa == "scalar") {
        findings.push_back({Level::kWarning, "cpu",
                            what + ": without vector instructions the kernels are several times slower",
                            "use a CPU with AVX2; in a virtual machine, pass the host's CPU model through"});
    } else {
        findings.push_back(
            {Level::kGood, "cpu", fmt::format("{} ({})", what, json.at("features").get<std::string>()), ""});
    }
    if (cores < system.num_cores) {
        findings.push_back(
            {Level::kNote, "cpu",
             fmt::format("this process may use {} of the machine's {} cores", cores, system.num_cores),
             "raise the CPU limit of the container or the affinity of the process, if that is not intended"});
    }
    return findings;
}

Findings check_gpus(const SystemView& system, const DriverReport& driver, const BuildFacts& build) {
    Findings findings;
    const bool has_driver = !system.driver_version.empty() || system.is_wsl || driver.found;
    if (!has_driver && system.gpus.empty())
        return {{Level::kGood, "gpu", "no NVIDIA GPU: every call runs on the CPU", ""}};
    check_hidden(system, findings);
    if (!has_driver) {
        const Findings missing = without_driver(system);
        findings.insert(findings.end(), missing.begin(), missing.end());
        return findings;
    }
    // A driver library alone, as images for GPU machines carry it, is not a machine with a GPU.
    if (system.driver_version.empty() && !system.is_wsl && system.gpus.empty() && driver.gpus.empty()) {
        return {{Level::kNote, "gpu",
                 "libcuda.so.1 is installed, but there is no NVIDIA GPU: every call runs on the CPU", ""}};
    }
    check_access(system, findings);
    check_driver(system, driver, findings);
    for (size_t i = 0; i < driver.gpus.size(); ++i) findings.push_back(gpu_finding(driver.gpus[i], i, build));
    return findings;
}

Findings check_environment(const SystemView& system, const BuildFacts& build) {
    Findings findings;
    for (const auto& [name, value] : system.environment) {
        if (!name.starts_with("TILEWISE_")) continue;
        const std::string setting = fmt::format("{}={}", name, value);
        if (name == "TILEWISE_FORCE_KERNEL" && !value.empty()) {
            const bool known = std::find(build.kernels.begin(), build.kernels.end(), value) != build.kernels.end();
            findings.push_back(known ? Finding{Level::kWarning, "environment",
                                               setting + ": every call that this kernel cannot serve is refused",
                                               "unset it, except to compare kernels"}
                                     : Finding{Level::kBroken, "environment",
                                               setting + ": this build has no such kernel, so every call is refused",
                                               "unset it; `tilewise info` lists the kernels"});
        } else if (name == "TILEWISE_NUM_THREADS") {
            findings.push_back({Level::kNote, "environment",
                                setting + ": the number of CPU threads of every call that does not set its own", ""});
        } else if (name != "TILEWISE_FORCE_KERNEL") {
            findings.push_back({Level::kWarning, "environment", setting + ": no such variable is read",
                                "known are TILEWISE_FORCE_KERNEL and TILEWISE_NUM_THREADS"});
        }
    }
    return findings;
}

int exit_code_of(const Findings& findings) {
    Level worst = Level::kGood;
    for (const Finding& finding : findings) worst = std::max(worst, finding.level);
    return worst == Level::kBroken ? 2 : worst == Level::kWarning ? 1 : 0;
}

}  // namespace tilewise::cli
