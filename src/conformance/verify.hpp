// The sweep: every kernel of the library that is loaded x every case, judged against the oracle. What `tilewise verify` prints and the
// conformance tests assert.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tilewise/tilewise.hpp"

namespace tilewise::conformance {

enum class ResultStatus {
    kPassed,
    kFailed,
    kRefused,  // the kernel says that it does not serve this problem or this device
};

struct Result {
    std::string kernel;
    std::string op;  // the kernel's
    std::string case_name;
    std::string dtype;
    ResultStatus status = ResultStatus::kPassed;
    std::string message;     // what is wrong, or why it was refused
    double worst_ratio = 0;  // largest error over the largest allowed one; passes up to 1
};

// Of names: "a,=b" selects those that contain a, and b itself; empty: all.
struct Filter {
    std::string kernel;
    std::string case_name;
    std::string device = "cpu";
};

// Called after every result, one at a time, from any thread; `total` is how many there will be.
using Progress = std::function<void(const Result& result, size_t done, size_t total)>;

// Results in the order of the cases, for each case in the order of the kernels. Throws tilewise::Error only if the device is not there.
std::vector<Result> verify(const Filter& filter = {}, const Progress& progress = {});

// Names of the kernels and cases that a filter selects.
std::vector<std::string> selected_kernels(const Filter& filter);
std::vector<std::string> selected_cases(const Filter& filter);

}  // namespace tilewise::conformance
