// Progress of long work, on stderr so that stdout stays machine-readable: a bar that redraws itself on a terminal, a line now
// and then elsewhere. Work that ends within two seconds shows nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tilewise::cli {

class Progress {
public:
    Progress(std::string label, int64_t total);
    ~Progress();  // clears the bar
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    // `detail` says what comes next.
    void show(int64_t done, const std::string& detail);

private:
    void draw(int64_t done, const std::string& detail, double seconds);

    std::string label_;
    int64_t total_ = 0;
    bool terminal_ = false;
    bool drawn_ = false;
    std::chrono::steady_clock::time_point start_;
    double last_ = 0;  // seconds after start_
};

}  // namespace tilewise::cli
