// The command line of `generate`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tilewise::generate {

struct SamplingOptions {
    bool greedy = false;
    double temperature = 0.2;  // what the model's authors recommend
    std::uint64_t seed = 0;
};

struct CacheOptions {
    std::string type = "f32";
    bool paged = false;
    std::int64_t page_size = 16;
};

struct CommandLine {
    std::string model = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
    std::string prompt = "Explain in three sentences how a lighthouse works.";
    std::optional<std::string> system;
    bool raw = false;
    std::int64_t tokens = 256;
    std::string attention = "tilewise";
    std::string device = "cpu";
    int threads = 0;
    bool print_ids = false;
    CacheOptions cache;
    SamplingOptions sampling;
};

// Exits through CLI11's own codes on --help and on a bad command line.
CommandLine parse_options(int argc, char** argv);

}  // namespace tilewise::generate
