// The program `tilewise`: parses the command line, runs one subcommand, turns errors into one line on stderr and an exit code
// (0 good, 1 failure, 2 bad usage; `doctor` uses 1 for warnings and 2 for a broken machine).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "commands.hpp"
#include "error.hpp"
#include "tilewise/tilewise.hpp"

namespace {

using namespace tilewise::cli;

int report(const std::string& message, int exit_code) {
    fmt::print(stderr, "tilewise: {}\n", message);
    return exit_code;
}

int run(int argc, char** argv) {
    CLI::App app("Exact attention on this machine's devices: what there is, what a call would run, and running it.",
                 "tilewise");
    app.set_version_flag("--version", "tilewise " + tilewise::version());
    app.require_subcommand(1);
    app.get_formatter()->column_width(34);
    int exit_code = kExitGood;
    add_info(app, exit_code);
    add_doctor(app, exit_code);
    add_plan(app, exit_code);
    add_run(app, exit_code);
    add_verify(app, exit_code);
    add_bench(app, exit_code);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        // Success is how CLI11 reports --help and --version.
        if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
        return report(std::string(error.what()) + "; --help lists what is allowed", kExitUsage);
    }
    return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const int exit_code = run(argc, argv);
        // What did not reach a full disk or a closed pipe is a failure, although every command succeeded.
        if (std::fflush(stdout) != 0) return report("stdout: cannot be written", kExitFailure);
        return exit_code;
    } catch (const UsageError& error) {
        return report(error.what(), kExitUsage);
    } catch (const tilewise::Error& error) {
        return report(error.what(), error.status() == tilewise::Status::kInvalidArgument ? kExitUsage : kExitFailure);
    } catch (const std::bad_alloc&) {
        return report("memory: the request does not fit into this machine's", kExitFailure);
    } catch (
        const std::system_error& error) {  // of printing more than the buffer holds; files have errors of their own
        return report(std::string("stdout: ") + error.what(), kExitFailure);
    } catch (const std::exception& error) {
        return report(error.what(), kExitFailure);
    }
}
