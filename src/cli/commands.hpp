// The subcommands. Each function declares its flags on `app` and runs when CLI11 has parsed them; it returns
// through `exit_code`, or by throwing UsageError, Failure or tilewise::Error.
#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's own
class App;
}

namespace tilewise::cli {

void add_info(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_run(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);

}  // namespace tilewise::cli
