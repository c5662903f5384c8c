// What the program says about its own work, on the error stream: progress of a long prompt, and the closing figures.
#pragma once

#include <cstdint>
#include <string>

namespace tilewise::generate {

// One stretch of work: tokens fed, wall seconds, and the seconds of them that attention took.
struct Stretch {
    std::int64_t tokens = 0;
    double seconds = 0;
    double attention_seconds = 0;
};

// A line that rewrites itself on a terminal, and a plain line now and then elsewhere. Silent for short prompts.
class PromptProgress {
public:
    explicit PromptProgress(std::int64_t tokens);
    void update(std::int64_t done);

private:
    std::int64_t tokens_;
    std::int64_t reported_tenths_ = 0;
    bool terminal_;
};

// Nothing if no token was fed.
void print_stretch(const std::string& name, const Stretch& stretch);

}  // namespace tilewise::generate
