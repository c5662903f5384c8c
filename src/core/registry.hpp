// The list of kernels. A row says what a kernel is, why it would refuse a problem, what it costs, how it lays itself out,
// and how to launch it; core reaches a kernel through these function pointers only.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/plan.hpp"

namespace tilewise {

// What a kernel is and where it runs.
struct KernelIdentity {
    std::string name;  // as profilers show it: "cpu_tiled_forward_bf16_avx512"
    DeviceKind device = DeviceKind::kCpu;
    Op op = Op::kForward;
    int32_t isa = 0;  // Isa of a CPU row, compute capability of a CUDA row
};

struct KernelRow : KernelIdentity {
    std::vector<DType> dtypes;  // of q, k, v
    int32_t max_head_dim = 0;
    int32_t max_head_dim_v = 0;
    std::string features;          // for the support table: "all", or what it lacks
    const void* kernel = nullptr;  // of the backend: what its functions below need to know of this row
    // Empty: the row serves the problem. Otherwise the reason, as a sentence for the caller.
    std::string (*refuse)(const KernelRow&, const Problem&, const DeviceInfo&) = nullptr;
    // Fills tiling, splits, threads and workspace blocks of a step whose row, problem and sizes are set.
    void (*layout)(Step&, const DeviceInfo&) = nullptr;
    // Seconds that the laid out step is predicted to take; only their order matters.
    double (*cost)(const Step&, const DeviceInfo&) = nullptr;
    Status (*launch)(const Step&, const Arguments&) = nullptr;
};

class Registry {
public:
    void add(KernelRow row) { rows_.push_back(std::move(row)); }
    std::span<const KernelRow> rows() const { return rows_; }
    const KernelRow* find(const std::string& name) const;

private:
    std::vector<KernelRow> rows_;
};

// The element type that rows are chosen by: of q, of k where there is no q (append), of partial_o (combine).
DType element_type_of(const Problem& problem);

// A JSON object: name, device, op, dtypes, max_head_dim, max_head_dim_v, isa, features.
std::string to_json(const KernelRow& row);

// The kernels of this build, filled once by the backends that were compiled in.
const Registry& default_registry();

}  // namespace tilewise
