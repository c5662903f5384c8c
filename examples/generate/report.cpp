// Progress and figures.
#include "report.hpp"

#include <unistd.h>

#include <cstdio>

namespace tilewise::generate {

namespace {
constexpr std::int64_t kWorthReporting = 512;  // tokens; below, the prompt is read before a line could be
}

PromptProgress::PromptProgress(std::int64_t tokens) : tokens_(tokens), terminal_(::isatty(STDERR_FILENO) == 1) {}

void PromptProgress::update(std::int64_t done) {
    if (tokens_ < kWorthReporting) {
        return;
    }
    const auto shown = static_cast<long long>(done);
    const auto all = static_cast<long long>(tokens_);
    if (terminal_) {
        constexpr int kWidth = 30;
        char bar[kWidth + 1] = {};
        for (int i = 0; i < kWidth; ++i) {
            bar[i] = i * tokens_ < done * kWidth ? '#' : '.';
        }
        std::fprintf(stderr, "\rprompt [%s] %lld of %lld tokens", bar, shown, all);
        if (done == tokens_) {
            std::fputs("\r\033[K", stderr);  // the text begins on this line
        }
    } else if (const std::int64_t tenths = 10 * done / tokens_; tenths > reported_tenths_) {
        reported_tenths_ = tenths;
        std::fprintf(stderr, "prompt: %lld of %lld tokens\n", shown, all);
    }
}

void print_stretch(const std::string& name, const Stretch& stretch) {
    if (stretch.tokens == 0) {
        return;
    }
    const auto tokens = static_cast<long long>(stretch.tokens);
    const double seconds = stretch.seconds > 0 ? stretch.seconds : 1e-9;
    std::fprintf(stderr, "%-8s %6lld tokens in %7.2f s, %8.1f tokens/s, %4.1f %% of the time in attention\n",
                 name.c_str(), tokens, stretch.seconds, static_cast<double>(tokens) / seconds,
                 100 * stretch.attention_seconds / seconds);
}

}  // namespace tilewise::generate
