// `tilewise verify`: every kernel x every conformance case against the oracle, on this machine. A line a kernel, then each failure.
// The cases, the oracle's second opinion and the tolerance are those of the conformance tests (src/conformance).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "conformance/verify.hpp"
#include "error.hpp"
#include "flags.hpp"
#include "progress.hpp"
#include "table.hpp"

namespace tilewise::cli {
namespace {

using Json = nlohmann::ordered_json;
using conformance::Result;
using conformance::ResultStatus;

struct VerifyFlags {
    conformance::Filter filter;
    bool json = false;
};

struct Tally {
    std::string kernel;
    int64_t passed = 0;
    int64_t failed = 0;
    int64_t refused = 0;
    double worst = 0;      // of the results that passed
    std::string worst_at;  // its case
    std::string reason;    // of a refusal
};

std::vector<Tally> tally(const std::vector<std::string>& kernels, const std::vector<Result>& results) {
    std::vector<Tally> tallies;
    for (const std::string& kernel : kernels) tallies.push_back({.kernel = kernel, .worst_at = "", .reason = ""});
    for (const Result& result : results) {
        Tally& t =
            *std::find_if(tallies.begin(), tallies.end(), [&](const Tally& x) { return x.kernel == result.kernel; });
        if (result.status == ResultStatus::kFailed) ++t.failed;
        if (result.status == ResultStatus::kRefused) {
            ++t.refused;
            t.reason = result.message;
        }
        if (result.status != ResultStatus::kPassed) continue;
        ++t.passed;
        if (result.worst_ratio < t.worst) continue;
        t.worst = result.worst_ratio;
        t.worst_at = fmt::format("{} {}", result.case_name, result.dtype);
    }
    return tallies;
}

// "forward causal bf16" for each problem that every kernel refused: together they should leave none.
std::vector<std::string> unserved(const std::vector<Result>& results) {
    std::map<std::string, bool> served;
    for (const Result& result : results)
        served[fmt::format("{} {} {}", result.op, result.case_name, result.dtype)] |=
            result.status != ResultStatus::kRefused;
    std::vector<std::string> names;
    for (const auto& [name, is_served] : served) {
        if (!is_served) names.push_back(name);
    }
    return names;
}

void print_text(const std::vector<Tally>& tallies, const std::vector<Result>& results) {
    using enum Table::Align;
    Table table({{"kernel"},
                 {"passed", kRight},
                 {"failed", kRight},
                 {"refused", kRight},
                 {"error / allowed", kRight},
                 {"largest in"}});
    for (const Tally& t : tallies) {
        const bool ran = t.passed > 0;
        table.add({t.kernel, std::to_string(t.passed), std::to_string(t.failed), std::to_string(t.refused),
                   ran ? fmt::format("{:.3f}", t.worst) : "-", t.worst_at});
    }
    fmt::print("{}", table.text());
    for (const Tally& t : tallies) {
        if (t.refused > 0) fmt::print("\n{} refused {} cases, the last because: {}\n", t.kernel, t.refused, t.reason);
    }
    if (const std::vector<std::string> names = unserved(results); !names.empty())
        fmt::print("\nserved by none of these kernels: {}\n", fmt::join(names, ", "));
    for (const Result& result : results) {
        if (result.status == ResultStatus::kFailed) {
            fmt::print("\nFAILED {} {} {}: {}\n", result.kernel, result.case_name, result.dtype, result.message);
        }
    }
}

void print_json(const std::vector<Tally>& tallies, const std::vector<Result>& results) {
    Json json{{"kernels", Json::array()}, {"failures", Json::array()}, {"unserved", unserved(results)}};
    for (const Tally& t : tallies) {
        json["kernels"].push_back({{"kernel", t.kernel},
                                   {"passed", t.passed},
                                   {"failed", t.failed},
                                   {"refused", t.refused},
                                   {"worst_error_ratio", t.worst},
                                   {"worst_case", t.worst_at},
                                   {"refusal", t.reason}});
    }
    for (const Result& result : results) {
        if (result.status != ResultStatus::kFailed) continue;
        json["failures"].push_back({{"kernel", result.kernel},
                                    {"case", result.case_name},
                                    {"dtype", result.dtype},
                                    {"message", result.message}});
    }
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

int run_verify(const VerifyFlags& flags) {
    open_device(flags.filter.device);  // its refusal says most
    const std::vector<std::string> kernels = conformance::selected_kernels(flags.filter);
    if (kernels.empty() && flags.filter.kernel.empty())
        throw UsageError(fmt::format("device: no kernel of this build runs on {}", flags.filter.device));
    if (kernels.empty()) {
        throw UsageError(fmt::format(
            "kernel: no name contains \"{}\"; there are {}", flags.filter.kernel,
            fmt::join(conformance::selected_kernels({.kernel = "", .case_name = "", .device = flags.filter.device}),
                      ", ")));
    }
    if (conformance::selected_cases(flags.filter).empty()) {
        throw UsageError(fmt::format("case: no name contains \"{}\"; there are {}", flags.filter.case_name,
                                     fmt::join(conformance::selected_cases({}), ", ")));
    }
    std::vector<Result> results;
    {
        std::unique_ptr<Progress> progress;
        results = conformance::verify(flags.filter, [&progress](const Result& result, size_t done, size_t total) {
            if (!progress) progress = std::make_unique<Progress>("verify", static_cast<int64_t>(total));
            progress->show(static_cast<int64_t>(done), fmt::format("{} {}", result.kernel, result.case_name));
        });
    }
    const std::vector<Tally> tallies = tally(kernels, results);
    if (flags.json)
        print_json(tallies, results);
    else
        print_text(tallies, results);
    const bool failed = std::any_of(tallies.begin(), tallies.end(), [](const Tally& t) { return t.failed > 0; });
    const bool passed = std::any_of(tallies.begin(), tallies.end(), [](const Tally& t) { return t.passed > 0; });
    if (!passed && !failed) throw Failure("verify: none of these kernels ran any of these cases");
    return failed ? kExitFailure : kExitGood;
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("verify", "every kernel and case against the oracle");
    const auto flags = std::make_shared<VerifyFlags>();
    command->add_option("--kernel", flags->filter.kernel,
                        "only kernels whose name contains this; A,=B: those that contain A, and B itself");
    command->add_option("--case", flags->filter.case_name, "only cases, likewise");
    command->add_option("--device", flags->filter.device, "a device of this machine")->capture_default_str();
    command->add_flag("--json", flags->json, "machine-readable");
    command->callback([flags, &exit_code] { exit_code = run_verify(*flags); });
}

}  // namespace tilewise::cli
