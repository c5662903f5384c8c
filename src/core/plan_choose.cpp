// Chooses the row of a step: every row of the step's op is asked, first by core (device, element type, head dims, instruction set, pin),
// then by its own `refuse`; of those that serve, the cheapest wins, and the first of equals. Every refusal keeps its reason.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "core/cost.hpp"
#include "core/plan_parts.hpp"

namespace tilewise {
namespace {

constexpr int32_t kMinComputeCapability = 80;

std::string dotted(int32_t compute_capability) {
    return fmt::format("{}.{}", compute_capability / 10, compute_capability % 10);
}

std::string joined(const std::vector<std::string>& words, const char* separator = ", ") {
    return fmt::format("{}", fmt::join(words, separator));
}

std::string dtype_refusal(const KernelRow& row, const Problem& problem) {
    const DType dtype = element_type_of(problem);
    if (std::find(row.dtypes.begin(), row.dtypes.end(), dtype) != row.dtypes.end()) return {};
    std::vector<std::string> names;
    for (const DType served : row.dtypes) names.emplace_back(name_of(served));
    return fmt::format("{}: {} elements; it serves {}",
                       problem.has(Arg::kQ)   ? "q"
                       : problem.has(Arg::kK) ? "k"
                                              : "partial_o",
                       name_of(dtype), joined(names));
}

std::string device_refusal(const KernelRow& row, const DeviceInfo& device) {
    if (row.device != device.kind)
        return row.device == DeviceKind::kCpu ? "runs on a CPU, not on a GPU" : "runs on a GPU, not on a CPU";
    if (device.kind == DeviceKind::kCpu && row.isa > static_cast<int32_t>(device.cpu.isa))
        return fmt::format("needs {}; this CPU has {}", name_of(static_cast<Isa>(row.isa)), name_of(device.cpu.isa));
    if (device.kind == DeviceKind::kCuda && row.isa > device.cuda.compute_capability)
        return fmt::format("needs compute capability {}; this GPU has {}", dotted(row.isa),
                           dotted(device.cuda.compute_capability));
    return {};
}

std::string size_refusal(const KernelRow& row, const Sizes& sizes) {
    if (sizes.head_dim > row.max_head_dim)
        return fmt::format("head_dim {}; it serves up to {}", sizes.head_dim, row.max_head_dim);
    if (sizes.head_dim_v > row.max_head_dim_v)
        return fmt::format("head_dim_v {}; it serves up to {}", sizes.head_dim_v, row.max_head_dim_v);
    return {};
}

// Empty: the row serves the step.
std::string refusal_of(const KernelRow& row, const Step& step, const DeviceInfo& device, const KernelRow* pinned) {
    if (std::string reason = device_refusal(row, device); !reason.empty()) return reason;
    if (std::string reason = dtype_refusal(row, step.problem); !reason.empty()) return reason;
    if (std::string reason = size_refusal(row, step.sizes); !reason.empty()) return reason;
    if (row.refuse != nullptr)
        if (std::string reason = row.refuse(row, step.problem, device); !reason.empty()) return reason;
    if (pinned != nullptr && pinned->op == row.op && pinned != &row)
        return fmt::format("kernel: the call asks for {}", pinned->name);
    return {};
}

// Edits between two names, a substitution, an insertion and a deletion counting 1.
size_t edit_distance(const std::string& a, const std::string& b) {
    std::vector<size_t> row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t substituted = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
            diagonal = row[j];
            row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

std::vector<std::string> nearest_names(const std::string& name, const Registry& registry, size_t count) {
    std::vector<std::pair<size_t, std::string>> ranked;
    for (const KernelRow& row : registry.rows()) {
        // A part of a name is nearer than any misspelling.
        const bool part = row.name.find(name) != std::string::npos;
        ranked.emplace_back(part ? 0 : edit_distance(name, row.name), row.name);
    }
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::string> names;
    for (size_t i = 0; i < std::min(count, ranked.size()); ++i) names.push_back(ranked[i].second);
    return names;
}

// "CPU, compute capability 8.0": what the rows of the registry run on.
std::string devices_served(const Registry& registry) {
    std::set<std::string> served;
    for (const KernelRow& row : registry.rows())
        served.insert(row.device == DeviceKind::kCpu ? "CPU" : "compute capability " + dotted(row.isa));
    return joined({served.begin(), served.end()});
}

std::string subject_of(const DeviceInfo& device) {
    if (device.kind == DeviceKind::kCpu) return fmt::format("{} ({})", device.name, name_of(device.cpu.isa));
    return fmt::format("{} (compute capability {})", device.name, dotted(device.cuda.compute_capability));
}

}  // namespace

Status find_pinned(const Problem& problem, const std::vector<Step>& steps, const Registry& registry,
                   const KernelRow** pinned) {
    const std::string& name = problem.exec.kernel;
    *pinned = nullptr;
    if (name.empty()) return {};
    const KernelRow* const row = registry.find(name);
    if (row == nullptr)
        return Status::invalid(registry.rows().empty()
                                   ? fmt::format("kernel: no kernel is named \"{}\"; this build has none", name)
                                   : fmt::format("kernel: no kernel is named \"{}\"; near names are {}", name,
                                                 joined(nearest_names(name, registry, 3))));
    const bool has_step =
        std::any_of(steps.begin(), steps.end(), [&](const Step& s) { return s.problem.op == row->op; });
    if (!has_step) {
        std::vector<std::string> ops;
        for (const Step& step : steps) ops.emplace_back(name_of(step.problem.op));
        return Status::invalid(
            fmt::format("kernel: {} computes {}; this call needs {}", name, name_of(row->op), joined(ops, " and ")));
    }
    *pinned = row;
    return {};
}

Status choose_row(Step& step, const Registry& registry, const KernelRow* pinned, Plan* plan) {
    const size_t first_refusal = plan->refused.size();
    std::vector<std::pair<const KernelRow*, double>> served;
    double lowest = std::numeric_limits<double>::infinity();
    Step best;
    for (const KernelRow& row : registry.rows()) {
        if (row.op != step.problem.op) continue;
        if (std::string reason = refusal_of(row, step, plan->device, pinned); !reason.empty()) {
            plan->refused.push_back({row.name, std::move(reason)});
            continue;
        }
        Step candidate = step;
        candidate.row = &row;
        if (row.layout != nullptr) row.layout(candidate, plan->device);
        const double seconds =
            row.cost != nullptr ? row.cost(candidate, plan->device) : roofline_seconds(candidate, plan->device);
        served.emplace_back(&row, seconds);
        if (best.row != nullptr && !(seconds < lowest)) continue;
        lowest = seconds;
        best = std::move(candidate);
    }
    if (best.row == nullptr) return Status::unsupported(unsupported_message(step, registry, *plan, first_refusal));
    for (const auto& [row, seconds] : served)
        if (row != best.row)
            plan->refused.push_back(
                {row->name, fmt::format("predicted {}, the chosen one {}", duration(seconds), duration(lowest))});
    step = std::move(best);
    plan->predicted_seconds += lowest;
    return {};
}

std::string duration(double seconds) {
    if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
    if (seconds >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
    return fmt::format("{:.3g} us", seconds * 1e6);
}

std::vector<std::string> grouped_refusals(const std::vector<Refusal>& refused, size_t first, size_t max_names) {
    std::vector<std::string> reasons;
    for (size_t i = first; i < refused.size(); ++i)
        if (std::find(reasons.begin(), reasons.end(), refused[i].reason) == reasons.end())
            reasons.push_back(refused[i].reason);
    std::vector<std::string> lines;
    for (const std::string& reason : reasons) {
        std::vector<std::string> names;
        for (size_t i = first; i < refused.size(); ++i)
            if (refused[i].reason == reason) names.push_back(refused[i].kernel);
        const size_t hidden = names.size() > max_names ? names.size() - max_names : 0;
        names.resize(names.size() - hidden);
        const std::string rest = hidden > 0 ? fmt::format(" and {} more", hidden) : "";
        lines.push_back(fmt::format("{}{}: {}", joined(names), rest, reason));
    }
    return lines;
}

std::string unsupported_message(const Step& step, const Registry& registry, const Plan& plan, size_t first_refusal) {
    const DeviceInfo& device = plan.device;
    const std::string op = name_of(step.problem.op);
    const bool too_old = device.kind == DeviceKind::kCuda && device.cuda.compute_capability < kMinComputeCapability;
    if (too_old)
        return fmt::format("device: no kernel runs on {}; compute capability {} or newer is needed", subject_of(device),
                           dotted(kMinComputeCapability));
    const auto rows = registry.rows();
    if (rows.empty()) return "device: this build has no kernels";
    const bool kind_served =
        std::any_of(rows.begin(), rows.end(), [&](const KernelRow& r) { return r.device == device.kind; });
    if (!kind_served)
        return fmt::format("device: no kernel of this build runs on {}; its kernels are for: {}", subject_of(device),
                           devices_served(registry));
    if (!plan.problem.exec.kernel.empty())
        for (size_t i = first_refusal; i < plan.refused.size(); ++i)
            if (plan.refused[i].kernel == plan.problem.exec.kernel)
                return fmt::format("kernel: {} cannot serve this {} on {}: {}", plan.refused[i].kernel, op,
                                   subject_of(device), plan.refused[i].reason);
    // The message keeps to rows of the device's kind; plan.refused holds all of them.
    std::vector<Refusal> refused;
    for (size_t i = first_refusal; i < plan.refused.size(); ++i) {
        const KernelRow* const row = registry.find(plan.refused[i].kernel);
        if (row != nullptr && row->device == device.kind) refused.push_back(plan.refused[i]);
    }
    if (refused.empty()) return fmt::format("no kernel of this build computes {} on {}", op, subject_of(device));
    constexpr size_t kMaxLines = 16, kMaxNames = 6;
    std::vector<std::string> lines = grouped_refusals(refused, 0, kMaxNames);
    if (lines.size() > kMaxLines) {
        const size_t hidden = lines.size() - kMaxLines;
        lines.resize(kMaxLines);
        lines.push_back(fmt::format("and {} more reasons", hidden));
    }
    return fmt::format("no kernel serves this {} on {}:\n  {}", op, subject_of(device), joined(lines, "\n  "));
}

}  // namespace tilewise
