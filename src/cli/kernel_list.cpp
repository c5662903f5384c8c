// Parses the kernels' JSON, asks the planner about this machine, and groups rows for the support table.
#include "kernel_list.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "synthetic.hpp"
#include "table.hpp"

namespace tilewise::cli {
namespace {

constexpr std::string_view kOracleMark = "_reference_";

// Kernels of one line of the table.
struct Group {
    std::vector<const KernelInfo*> members;

    bool takes(const KernelInfo& kernel) const {
        const auto key = [](const KernelInfo& k) {
            return std::tuple(k.device, k.op, k.max_head_dim, k.max_head_dim_v, k.features, is_oracle(k));
        };
        return key(*members.front()) == key(kernel);
    }
    // The names' common beginning.
    std::string name() const {
        const std::string& first = members.front()->name;
        size_t same = first.size();
        for (const KernelInfo* kernel : members) {
            const auto differ = std::mismatch(first.begin(), first.end(), kernel->name.begin(), kernel->name.end());
            same = std::min(same, static_cast<size_t>(differ.first - first.begin()));
        }
        return members.size() == 1 ? first : first.substr(0, same) + "*";
    }
    std::vector<std::string> dtypes() const {
        std::vector<std::string> all;
        for (const KernelInfo* kernel : members) {
            for (const std::string& dtype : kernel->dtypes) {
                if (std::find(all.begin(), all.end(), dtype) == all.end()) all.push_back(dtype);
            }
        }
        return all;
    }
    // "scalar, avx2, avx512_bf16 (bf16)": element types where an instruction set lacks some of the group's.
    std::string instruction_sets() const {
        std::vector<std::string> texts;
        std::vector<std::string> seen;
        for (const KernelInfo* kernel : members) {
            if (std::find(seen.begin(), seen.end(), kernel->isa) != seen.end()) continue;
            seen.push_back(kernel->isa);
            std::vector<std::string> served;
            for (const std::string& dtype : dtypes()) {
                const bool serves = std::any_of(members.begin(), members.end(), [&](const KernelInfo* k) {
                    return k->isa == kernel->isa && std::count(k->dtypes.begin(), k->dtypes.end(), dtype) > 0;
                });
                if (serves) served.push_back(dtype);
            }
            const bool all = served.size() == dtypes().size();
            texts.push_back(all ? kernel->isa : fmt::format("{} ({})", kernel->isa, fmt::join(served, ", ")));
        }
        return fmt::format("{}", fmt::join(texts, ", "));
    }
};

}  // namespace

std::vector<KernelInfo> kernel_list() {
    std::vector<KernelInfo> list;
    for (const std::string& text : kernels()) {
        const nlohmann::json json = nlohmann::json::parse(text);
        list.push_back({.name = json.at("name"),
                        .device = json.at("device"),
                        .op = json.at("op"),
                        .dtypes = json.at("dtypes"),
                        .max_head_dim = json.at("max_head_dim"),
                        .max_head_dim_v = json.at("max_head_dim_v"),
                        .isa = json.at("isa"),
                        .features = json.at("features")});
    }
    return list;
}

bool is_oracle(const KernelInfo& kernel) { return kernel.name.find(kOracleMark) != std::string::npos; }

std::optional<std::string> oracle_kernel(Op op) {
    const std::string wanted = name_of(op == Op::kDecode ? Op::kForward : op);
    for (const KernelInfo& kernel : kernel_list()) {
        if (kernel.op == wanted && is_oracle(kernel)) return kernel.name;
    }
    return std::nullopt;
}

std::string reason_against(const KernelInfo& kernel) {
    const std::vector<std::string> here = devices();
    const auto runs_it = [&](const std::string& device) { return device.starts_with(kernel.device); };
    const auto device = std::find_if(here.begin(), here.end(), runs_it);
    if (device == here.end()) return fmt::format("this machine has no {} device", kernel.device);
    ProblemFlags flags;
    flags.shape.op = kernel.op;
    flags.shape.dtype = kernel.dtypes.empty() ? "f32" : kernel.dtypes.front();
    flags.shape.seqlen_q = 64;
    flags.exec.kernel = kernel.name;
    try {
        plan_of(Device(*device), make_call(flags, Contents::kNone));
        return "";
    } catch (const Error& error) {
        return error.what();
    }
}

std::string support_table_markdown(const std::vector<KernelInfo>& kernels) {
    std::vector<Group> groups;
    for (const KernelInfo& kernel : kernels) {
        const auto home = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.takes(kernel); });
        if (home == groups.end())
            groups.push_back({{&kernel}});
        else
            home->members.push_back(&kernel);
    }
    Table table({{"operation"},
                 {"kernels"},
                 {"device"},
                 {"element types"},
                 {"head_dim"},
                 {"head_dim_v"},
                 {"runs on"},
                 {"features"}});
    for (const Group& group : groups) {
        const KernelInfo& first = *group.members.front();
        table.add({first.op, fmt::format("`{}`", group.name()), first.device,
                   fmt::format("{}", fmt::join(group.dtypes(), ", ")), fmt::format("1..{}", first.max_head_dim),
                   fmt::format("1..{}", first.max_head_dim_v), group.instruction_sets(), first.features});
    }
    return table.markdown();
}

}  // namespace tilewise::cli
