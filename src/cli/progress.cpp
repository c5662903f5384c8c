// Redraws at most ten times a second on a terminal, prints at most one line in five seconds elsewhere.
#include "progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tilewise::cli {
namespace {

constexpr double kQuietSeconds = 2.0;
constexpr double kRedrawSeconds = 0.1;
constexpr double kLineSeconds = 5.0;
constexpr size_t kBarWidth = 24;
constexpr const char* kClearLine = "\r\x1b[K";

size_t terminal_columns() {
    winsize size{};
    return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string duration(double seconds) {
    const auto whole = static_cast<int64_t>(seconds + 0.5);
    return whole < 60 ? fmt::format("{} s", whole) : fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(std::string label, int64_t total)
    : label_(std::move(label)),
      total_(std::max<int64_t>(total, 1)),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
    if (terminal_ && drawn_) std::fputs(kClearLine, stderr);
}

void Progress::show(int64_t done, const std::string& detail) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    if (seconds < kQuietSeconds) return;
    if (drawn_ && seconds - last_ < (terminal_ ? kRedrawSeconds : kLineSeconds)) return;
    last_ = seconds;
    drawn_ = true;
    draw(done, detail, seconds);
}

void Progress::draw(int64_t done, const std::string& detail, double seconds) {
    const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0);
    const std::string left = done > 0 ? fmt::format(", {} left", duration(seconds / share - seconds)) : "";
    std::string line = fmt::format("{} of {}{}  {}", done, total_, left, detail);
    if (!terminal_) {
        fmt::print(stderr, "{}: {}\n", label_, line);
        return;
    }
    const auto filled = static_cast<size_t>(share * static_cast<double>(kBarWidth));
    line = fmt::format("{} [{}{}] {}", label_, std::string(filled, '#'), std::string(kBarWidth - filled, '.'), line);
    fmt::print(stderr, "{}{}", kClearLine, line.substr(0, terminal_columns() - 1));
    std::fflush(stderr);
}

}  // namespace tilewise::cli
