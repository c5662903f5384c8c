// What `tilewise doctor` concludes from what it sees. The checks are functions of plain values, so that a test can show them machines
// with broken drivers, old cards and hidden devices.
#pragma once

#include <string>
#include <vector>

#include "cuda_driver.hpp"
#include "system_view.hpp"

namespace tilewise::cli {

enum class Level { kGood, kNote, kWarning, kBroken };
const char* name_of(Level level);

struct Finding {
    Level level = Level::kGood;
    std::string topic;
    std::string text;
    std::string action;                  // what to do; empty where there is nothing to
    std::vector<std::string> details{};  // more of the reasons, one line each
};
using Findings = std::vector<Finding>;

// The newest driver branch that CUDA 13 needs, and CUDA 13 itself as the driver counts.
constexpr int kNeededDriver = 580;
constexpr int kNeededCuda = 13000;
constexpr int kNeededComputeCapability = 80;

struct BuildFacts {
    bool has_cuda_kernels = false;
    std::string header_version;
    std::string library_version;
    std::string library_path;
    std::vector<std::string> kernels;
};

Findings check_build(const BuildFacts& build);
// `cpu` is the device's JSON.
Findings check_cpu(const std::string& cpu, const SystemView& system);
Findings check_gpus(const SystemView& system, const DriverReport& driver, const BuildFacts& build);
Findings check_environment(const SystemView& system, const BuildFacts& build);

// 0 for good and notes, 1 for warnings, 2 for broken.
int exit_code_of(const Findings& findings);

}  // namespace tilewise::cli
