// A registry of rows that compute nothing, for tests of choosing, laying out and launching: two CPU forwards, an f32-only and an
// f64-only one among them, append, combine, backward, and forwards of two GPU families.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/cost.hpp"
#include "core/registry.hpp"
#include "core/workspace.hpp"

namespace tilewise::fake {

// What the launch functions saw, in order.
struct Launch {
    std::string kernel;
    Arguments arguments;
};
inline std::vector<Launch>& launches() {
    static std::vector<Launch> all;
    return all;
}

inline Status record_launch(const Step& step, const Arguments& arguments) {
    launches().push_back({step.row->name, arguments});
    return {};
}
inline Status fail_launch(const Step& step, const Arguments&) {
    return {StatusCode::kDeviceError, step.row->name + " failed"};
}

inline void layout_with_splits(Step& step, const DeviceInfo& device) {
    step.tiling = {64, 128, 2};
    step.num_threads = device.kind == DeviceKind::kCpu ? device.cpu.num_cores : 1;
    step.num_splits = step.problem.exec.num_splits > 0 ? step.problem.exec.num_splits : 2;
    WorkspaceLayout layout(step.workspace_base);
    layout.add("partial_o", step.num_splits * step.sizes.total_q * step.sizes.num_heads_q * step.sizes.head_dim_v * 4);
    layout.add("partial_lse", step.num_splits * step.sizes.total_q * step.sizes.num_heads_q * 4);
    step.workspace = layout.take_blocks();
}
inline void layout_plain(Step& step, const DeviceInfo& device) {
    step.num_threads = device.kind == DeviceKind::kCpu ? device.cpu.num_cores : 1;
}

inline double cost_slow(const Step& step, const DeviceInfo& device) { return 50 * roofline_seconds(step, device); }

inline std::string refuse_dropout(const KernelRow&, const Problem& problem, const DeviceInfo&) {
    if (problem.score.dropout_p > 0.0f) return fmt::format("dropout_p: {}; it has no dropout", problem.score.dropout_p);
    return {};
}
inline std::string refuse_other_than_hopper(const KernelRow&, const Problem&, const DeviceInfo& device) {
    if (device.cuda.compute_capability != 90) return "runs on compute capability 9.0 only";
    return {};
}

inline KernelRow row(std::string name, DeviceKind device, Op op, std::vector<DType> dtypes, int32_t isa) {
    KernelRow r;
    r.name = std::move(name);
    r.device = device;
    r.op = op;
    r.dtypes = std::move(dtypes);
    r.max_head_dim = 256;
    r.max_head_dim_v = 512;
    r.features = "all";
    r.isa = isa;
    r.layout = layout_plain;
    r.launch = record_launch;
    return r;
}

inline std::vector<KernelRow> cpu_rows() {
    const std::vector<DType> all{DType::kF32, DType::kF16, DType::kBF16, DType::kF64};
    const std::vector<DType> half_and_single{DType::kF32, DType::kF16, DType::kBF16};
    const auto isa = [](Isa i) { return static_cast<int32_t>(i); };
    std::vector<KernelRow> rows;
    rows.push_back(row("fake_oracle_forward", DeviceKind::kCpu, Op::kForward, all, isa(Isa::kScalar)));
    rows.back().cost = cost_slow;
    rows.push_back(row("fake_forward_avx2", DeviceKind::kCpu, Op::kForward, half_and_single, isa(Isa::kAvx2)));
    rows.back().layout = layout_with_splits;
    rows.push_back(
        row("fake_forward_avx512_bf16", DeviceKind::kCpu, Op::kForward, {DType::kBF16}, isa(Isa::kAvx512Bf16)));
    rows.back().layout = layout_with_splits;
    rows.back().refuse = refuse_dropout;
    rows.push_back(row("fake_backward", DeviceKind::kCpu, Op::kBackward, half_and_single, isa(Isa::kScalar)));
    rows.push_back(row("fake_append", DeviceKind::kCpu, Op::kAppend, all, isa(Isa::kScalar)));
    rows.push_back(row("fake_combine", DeviceKind::kCpu, Op::kCombine, half_and_single, isa(Isa::kScalar)));
    return rows;
}

inline std::vector<KernelRow> cuda_rows() {
    const std::vector<DType> half{DType::kF16, DType::kBF16};
    std::vector<KernelRow> rows;
    rows.push_back(row("fake_sm80_forward_d128", DeviceKind::kCuda, Op::kForward, half, 80));
    rows.back().max_head_dim = rows.back().max_head_dim_v = 128;
    rows.back().cost = [](const Step& step, const DeviceInfo& device) { return 2 * roofline_seconds(step, device); };
    rows.push_back(row("fake_sm90_forward_d128", DeviceKind::kCuda, Op::kForward, half, 90));
    rows.back().max_head_dim = rows.back().max_head_dim_v = 128;
    rows.back().refuse = refuse_other_than_hopper;
    rows.push_back(row("fake_sm80_append", DeviceKind::kCuda, Op::kAppend, half, 80));
    return rows;
}

inline Registry registry_of(const std::vector<KernelRow>& rows) {
    Registry registry;
    for (const KernelRow& r : rows) registry.add(r);
    return registry;
}
inline const Registry& registry() {
    static const Registry all = [] {
        std::vector<KernelRow> rows = cpu_rows();
        for (KernelRow& r : cuda_rows()) rows.push_back(std::move(r));
        return registry_of(rows);
    }();
    return all;
}

inline DeviceInfo recorded(const std::string& key) {
    for (const RecordedDevice& device : recorded_devices())
        if (device.key == key) return device.info;
    return {};
}

}  // namespace tilewise::fake
