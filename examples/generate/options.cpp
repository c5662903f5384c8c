// The command line: options, allowed values and help text.
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <cstdlib>

namespace tilewise::generate {

CommandLine parse_options(int argc, char** argv) {
    CommandLine options;
    std::string system;
    CLI::App app{
        "Writes text with a llama-architecture language model from a GGUF file; Tilewise computes its attention."};
    app.set_help_flag("-h,--help", "This text");
    app.add_option("--model", options.model, "GGUF file (F32, F16, Q8_0, Q4_1 tensors)")->capture_default_str();
    app.add_option("--prompt", options.prompt, "What the user says")->capture_default_str();
    auto* system_option =
        app.add_option("--system", system, "System message; the model's own if not given, none if empty");
    app.add_flag("--raw", options.raw, "Continue the prompt as it is, without the chat form; <|control tokens|> count")
        ->excludes(system_option);
    app.add_option("--tokens", options.tokens, "Most tokens to write")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    app.add_option("--attention", options.attention, "tilewise: the product's kernels; oracle: plain loops in double")
        ->check(CLI::IsMember({"tilewise", "oracle"}))
        ->capture_default_str();
    app.add_option("--device", options.device, "Where attention is computed: cpu, cuda (a GPU), cuda:1 ...")
        ->capture_default_str();
    app.add_option("--cache", options.cache.type, "Element type of the key-value cache")
        ->check(CLI::IsMember({"f32", "f16", "bf16"}))
        ->capture_default_str();
    auto* paged = app.add_flag("--paged", options.cache.paged, "Keep the cache in pages, in shuffled order");
    app.add_option("--page-size", options.cache.page_size, "Keys a page holds")
        ->check(CLI::Range(1, 1 << 20))
        ->needs(paged)
        ->capture_default_str();
    auto* temperature =
        app.add_option("--temperature", options.sampling.temperature, "0 always takes the likeliest token")
            ->check(CLI::Range(0.0, 100.0))
            ->capture_default_str();
    app.add_flag("--greedy", options.sampling.greedy, "Take the likeliest token: the same as --temperature 0")
        ->excludes(temperature);
    app.add_option("--seed", options.sampling.seed, "Seed of the sampling")->capture_default_str();
    app.add_option("--threads", options.threads, "Threads; 0: one a core")
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
    app.add_flag("--print-ids", options.print_ids, "Print the tokens' numbers instead of their text");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        std::exit(app.exit(error));
    }
    if (system_option->count() > 0) {
        options.system = system;
    }
    return options;
}

}  // namespace tilewise::generate
