// Asks the CUDA driver library, if there is one, for its version and its GPUs, without linking it.
//
// A broken driver can crash or hang whoever loads it, so a child process asks, with a time limit, and reports through a pipe.
#pragma once

#include <string>
#include <vector>

namespace tilewise::cli {

struct DriverGpu {
    std::string name;
    int compute_capability = 0;  // 10 * major + minor
    double memory_gib = 0;
};

struct DriverReport {
    bool found = false;      // libcuda.so.1 could be loaded
    std::string load_error;  // of the dynamic linker, if not
    int cuda_version = 0;    // 1000 * major + 10 * minor: the newest CUDA that this driver runs
    int init_error = 0;      // what cuInit returned; 0 is success
    std::string failure;     // the child crashed or did not answer
    std::vector<DriverGpu> gpus;
};

// `library` is libcuda.so.1 except in tests.
DriverReport ask_cuda_driver(const std::string& library);

}  // namespace tilewise::cli
