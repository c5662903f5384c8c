// `tilewise bench`: times the points of a grid, checks each output against the oracle, and prints a table (CSV and JSON on request).
// Rates: FLOPs and bytes by the formulas of work.hpp, over the median time. Exit code 1 if an output is wrong or
// a point is not served.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "atomic_file.hpp"
#include "commands.hpp"
#include "error.hpp"
#include "grid.hpp"
#include "kernel_list.hpp"
#include "oracle.hpp"
#include "progress.hpp"
#include "table.hpp"
#include "timing.hpp"
#include "work.hpp"

namespace tilewise::cli {
namespace {

using Json = nlohmann::ordered_json;

// A second or less of the oracle for each point.
constexpr double kOracleFlops = 3e8;

struct BenchFlags {
    std::vector<std::string> grids;
    std::string device = "cpu";
    bool all_kernels = false;
    double seconds = 0.5;
    std::string csv;
    std::string json;
    bool force = false;
};

struct Row {
    std::string grid;
    std::string problem;
    std::string kernel;
    std::string refusal;  // why the point was not run
    Timing timing;
    Work work;
    OracleCheck check;

    double tflops() const { return work.flops / timing.median * 1e-12; }
    double gigabytes() const { return work.bytes / timing.median * 1e-9; }
    bool good() const { return refusal.empty() && (!check.done || check.passed()); }
    std::string verdict() const {
        if (!refusal.empty()) return "not served";
        if (!check.done) return "unchecked: " + check.what;
        if (check.passed()) return fmt::format("{:.2f} ({})", check.worst, check.what);
        return fmt::format("WRONG {} by {:.3g} ({})", check.where, check.worst, check.what);
    }
};

Row measure(const Device& device, const GridPoint& point, double seconds) {
    Row row;
    row.grid = point.grid;
    row.problem = point.text;
    row.kernel = point.flags.exec.kernel;
    try {
        const Call call = make_call(point.flags, Contents::kRandom);
        const Plan plan = plan_of(device, call);
        row.kernel = plan.kernel();
        row.work = work_of(point.flags, call);
        const DeviceCall timed(device, call);
        prepare(device, timed.call());
        row.timing = time_call(device, plan, timed, seconds);
        timed.fetch();
        row.check = check_with_oracle(call, kOracleFlops);
    } catch (const Error& error) {
        row.refusal = error.what();
    }
    return row;
}

// One point for each kernel of the device's kind that serves the point's operation and element type, the oracle apart.
std::vector<GridPoint> for_all_kernels(const std::vector<GridPoint>& points, const std::string& device) {
    const std::string kind = device.substr(0, device.find(':'));
    std::vector<GridPoint> all;
    for (const GridPoint& point : points) {
        const std::string op = point.flags.shape.op == "decode" ? "forward" : point.flags.shape.op;
        for (const KernelInfo& kernel : kernel_list()) {
            const bool has_dtype = std::count(kernel.dtypes.begin(), kernel.dtypes.end(), point.flags.shape.dtype) > 0;
            if (kernel.device != kind || kernel.op != op || !has_dtype || is_oracle(kernel)) continue;
            if (!reason_against(kernel).empty()) continue;
            all.push_back(point);
            all.back().flags.exec.kernel = kernel.name;
        }
    }
    return all;
}

std::string milliseconds(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }
std::string rate(double value) { return value > 0 ? fmt::format("{:.3g}", value) : "-"; }

Table table_of(const std::vector<Row>& rows) {
    using enum Table::Align;
    Table table({{"grid"},
                 {"problem"},
                 {"kernel"},
                 {"ms", kRight},
                 {"p10", kRight},
                 {"p90", kRight},
                 {"TFLOP/s", kRight},
                 {"GB/s", kRight},
                 {"error / allowed"}});
    for (const Row& row : rows) {
        if (!row.refusal.empty()) {
            table.add({row.grid, row.problem, row.kernel, "-", "-", "-", "-", "-", row.verdict()});
            continue;
        }
        table.add({row.grid, row.problem, row.kernel, milliseconds(row.timing.median), milliseconds(row.timing.p10),
                   milliseconds(row.timing.p90), rate(row.tflops()), rate(row.gigabytes()), row.verdict()});
    }
    return table;
}

Json json_of(const Row& row) {
    return {{"grid", row.grid},
            {"problem", row.problem},
            {"kernel", row.kernel},
            {"refusal", row.refusal},
            {"seconds", {{"median", row.timing.median}, {"p10", row.timing.p10}, {"p90", row.timing.p90}}},
            {"repeats", row.timing.repeats},
            {"flops", row.work.flops},
            {"bytes", row.work.bytes},
            {"check",
             {{"done", row.check.done},
              {"passed", row.check.passed()},
              {"error_of_allowed", row.check.worst},
              {"what", row.check.what}}}};
}

std::string json_report(const Device& device, const std::vector<Row>& rows) {
    const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    Json json;
    json["tilewise"] = version();
    json["time"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
    json["device"] = Json::parse(device.json());
    json["rows"] = Json::array();
    for (const Row& row : rows) json["rows"].push_back(json_of(row));
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_report(const std::string& path, const std::string& text, bool force) {
    AtomicFile file(path, force);
    file.write(text);
    file.commit();
}

int run_bench(const BenchFlags& flags) {
    for (const std::string& path : {flags.csv, flags.json}) {
        if (!path.empty()) check_can_write(path, flags.force);
    }
    const Device device = open_device(flags.device);
    std::vector<GridPoint> points;
    for (const std::string& grid : flags.grids) {
        const std::vector<GridPoint> more = load_grid(grid);
        points.insert(points.end(), more.begin(), more.end());
    }
    if (flags.all_kernels) points = for_all_kernels(points, flags.device);
    std::vector<Row> rows;
    {
        Progress progress("bench", static_cast<int64_t>(points.size()));
        for (const GridPoint& point : points) {
            progress.show(static_cast<int64_t>(rows.size()), point.text);
            rows.push_back(measure(device, point, flags.seconds));
        }
    }
    const Table table = table_of(rows);
    fmt::print("{}", table.text());
    if (!flags.csv.empty()) write_report(flags.csv, table.csv(), flags.force);
    if (!flags.json.empty()) write_report(flags.json, json_report(device, rows), flags.force);
    for (const Row& row : rows) {
        if (!row.refusal.empty()) fmt::print(stderr, "tilewise: {}: {}\n", row.problem, row.refusal);
    }
    return std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.good(); }) ? kExitGood : kExitFailure;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("bench", "times a grid of problems and checks their outputs");
    const auto flags = std::make_shared<BenchFlags>();
    flags->grids = {"quick"};
    command->add_option("grid", flags->grids, "grids: quick, cpu, or TOML files")->capture_default_str();
    command->add_option("--device", flags->device, "a device of this machine")->capture_default_str();
    command->add_flag("--all-kernels", flags->all_kernels,
                      "every kernel that serves a point, not only the planned one");
    command->add_option("--seconds", flags->seconds, "repeat each point for this long")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command->add_option("--csv", flags->csv, "write the table")->type_name("FILE");
    command->add_option("--json", flags->json, "write everything, with the device")->type_name("FILE");
    command->add_flag("--force", flags->force, "replace files that exist");
    command->callback([flags, &exit_code] { exit_code = run_bench(*flags); });
}

}  // namespace tilewise::cli
