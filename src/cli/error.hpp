// The two ways a command ends early: the caller asked for something that cannot be (exit code 2), or a well-formed request
// failed (exit code 1). Messages follow the library's form "argument: what is wrong with the actual value; what is allowed";
// main() prints them behind "tilewise: ".
#pragma once

#include <stdexcept>
#include <string>

namespace tilewise::cli {

enum ExitCode : int { kExitGood = 0, kExitFailure = 1, kExitUsage = 2 };

class UsageError : public std::runtime_error {
public:
    explicit UsageError(const std::string& message) : std::runtime_error(message) {}
};

class Failure : public std::runtime_error {
public:
    explicit Failure(const std::string& message) : std::runtime_error(message) {}
};

}  // namespace tilewise::cli
