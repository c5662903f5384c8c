// `tilewise plan`: any problem as flags -> the problem, the plan for a device (this machine's or a recorded one), and every
// refused kernel with its reason. No memory is taken for the tensors, so any size can be asked about.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "error.hpp"
#include "slots.hpp"
#include "synthetic.hpp"

namespace tilewise::cli {
namespace {

using Json = nlohmann::ordered_json;

struct PlanFlags {
    ProblemFlags problem;
    std::string device = "cpu";
    bool json = false;
};

std::string problem_text(const Call& call, const std::string& device) {
    std::string text = fmt::format("{} on {}\n", name_of(call.op), device);
    if (call.op != Op::kCombine) return text + tensors_text(call.attention);
    const Combination& c = call.combination;
    for (const auto& [name, tensor] :
         {std::pair{"partial_o", &c.partial_o}, {"partial_lse", &c.partial_lse}, {"o", &c.o}, {"lse", &c.lse}}) {
        if (tensor->given()) text += fmt::format("  {:<16} {}\n", name, to_text(*tensor));
    }
    return text;
}

int print_plan(const PlanFlags& flags) {
    const Device device = open_device(flags.device);
    const Call call = make_call(flags.problem, Contents::kNone);
    Json json{{"status", "ok"}, {"message", ""}, {"plan", nullptr}};
    try {
        const Plan plan = plan_of(device, call);
        json["plan"] = Json::parse(plan.json());
        if (flags.json)
            fmt::print("{}\n", json.dump(2));
        else
            fmt::print("{}", plan.text());
        return kExitGood;
    } catch (const Error& error) {
        // No kernel is an answer to this question; an ill-formed problem is bad usage.
        if (error.status() != Status::kUnsupported) throw;
        json["status"] = "unsupported";
        json["message"] = error.what();
        if (flags.json)
            fmt::print("{}\n", json.dump(2));
        else
            fmt::print("{}no kernel\n", problem_text(call, flags.device));
        fmt::print(stderr, "tilewise: {}\n", error.what());
        return kExitFailure;
    }
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("plan", "what a problem would run on a device, and why not something else");
    const auto flags = std::make_shared<PlanFlags>();
    add_flags(*command, flags->problem);
    command->add_option("--device", flags->device, "a device of `tilewise info`, recorded ones included")
        ->capture_default_str();
    command->add_flag("--json", flags->json, "machine-readable");
    command->callback([flags, &exit_code] { exit_code = print_plan(*flags); });
}

}  // namespace tilewise::cli
