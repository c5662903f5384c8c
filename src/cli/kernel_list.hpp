// The registry as the library describes it, and what is derived from it: which kernel is the oracle, whether a kernel runs on this
// machine, and the support table of the README.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tilewise/tilewise.hpp"

namespace tilewise::cli {

struct KernelInfo {
    std::string name;
    std::string device;  // "cpu" or "cuda"
    std::string op;
    std::vector<std::string> dtypes;
    int max_head_dim = 0;
    int max_head_dim_v = 0;
    std::string isa;  // instruction set, or compute capability
    std::string features;
};
std::vector<KernelInfo> kernel_list();

// The kernel that computes `op` in plain double loops, which every other one is compared with; none for append and combine.
std::optional<std::string> oracle_kernel(Op op);
bool is_oracle(const KernelInfo& kernel);

// Empty: the kernel serves a small plain problem of its first element type on this machine. Otherwise why not.
std::string reason_against(const KernelInfo& kernel);

// One line for each group of kernels that differ only in instruction set and element types.
std::string support_table_markdown(const std::vector<KernelInfo>& kernels);

}  // namespace tilewise::cli
