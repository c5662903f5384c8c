// `tilewise info`: devices of this machine, recorded devices, and every kernel of this build with what it supports.
// --markdown prints the support table of the README, which depends on the build and not on the machine.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "kernel_list.hpp"
#include "table.hpp"

namespace tilewise::cli {
namespace {

using Json = nlohmann::ordered_json;

struct InfoFlags {
    bool json = false;
    bool markdown = false;
};

std::string described(const Json& device) {
    if (device.at("kind") == "cpu") {
        return fmt::format("{}: {} cores, {}, L2 {} KiB", device.at("name").get<std::string>(),
                           device.at("num_cores").get<int64_t>(), device.at("isa").get<std::string>(),
                           device.at("l2_bytes").get<int64_t>() / 1024);
    }
    const auto capability = device.at("compute_capability").get<int64_t>();
    return fmt::format("{}: compute capability {}.{}, {} multiprocessors, {} GiB", device.at("name").get<std::string>(),
                       capability / 10, capability % 10, device.at("num_multiprocessors").get<int64_t>(),
                       (device.at("memory_bytes").get<int64_t>() + (int64_t{1} << 29)) >> 30);
}

std::string device_lines(bool recorded) {
    Table table({{"device"}, {"what it is"}});
    for (const std::string& name : devices(true)) {
        if (name.starts_with("recorded:") == recorded) table.add({name, described(Json::parse(Device(name).json()))});
    }
    return table.text();
}

void print_text() {
    fmt::print("tilewise {}\n\n{}\n", version(), device_lines(false));
    Table table(
        {{"kernel"}, {"op"}, {"element types"}, {"head_dim"}, {"head_dim_v"}, {"needs"}, {"features"}, {"runs here"}});
    for (const KernelInfo& kernel : kernel_list()) {
        table.add({kernel.name, kernel.op, fmt::format("{}", fmt::join(kernel.dtypes, " ")),
                   fmt::format("1..{}", kernel.max_head_dim), fmt::format("1..{}", kernel.max_head_dim_v), kernel.isa,
                   kernel.features, reason_against(kernel).empty() ? "yes" : "no"});
    }
    fmt::print("{}\nrecorded devices, for `tilewise plan --device NAME`\n{}", table.text(), device_lines(true));
}

void print_json() {
    Json json;
    json["version"] = version();
    json["devices"] = Json::array();
    for (const std::string& name : devices(true)) {
        Json device = Json::parse(Device(name).json());
        Json entry{{"device", name}};
        entry.update(device);
        json["devices"].push_back(entry);
    }
    json["kernels"] = Json::array();
    const std::vector<KernelInfo> list = kernel_list();
    const std::vector<std::string> texts = kernels();
    for (size_t i = 0; i < list.size(); ++i) {
        Json kernel = Json::parse(texts[i]);
        const std::string reason = reason_against(list[i]);
        kernel["runs_here"] = reason.empty();
        kernel["reason"] = reason;
        json["kernels"].push_back(kernel);
    }
    fmt::print("{}\n", json.dump(2));
}

}  // namespace

void add_info(CLI::App& app, int&) {
    CLI::App* command = app.add_subcommand("info", "devices, kernels, and what each supports");
    const auto flags = std::make_shared<InfoFlags>();
    auto* json = command->add_flag("--json", flags->json, "machine-readable");
    command->add_flag("--markdown", flags->markdown, "the support table of the README")->excludes(json);
    command->callback([flags] {
        if (flags->markdown)
            fmt::print("{}", support_table_markdown(kernel_list()));
        else if (flags->json)
            print_json();
        else
            print_text();
    });
}

}  // namespace tilewise::cli
