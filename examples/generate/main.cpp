// generate: a small language model in C++ whose every attention, of the prompt and of each new token, is Tilewise's.
//
//   GGUF file, prompt -> text on standard output as it is made; speed and the share of attention on standard error
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "attention.hpp"
#include "chat.hpp"
#include "config.hpp"
#include "kernels.hpp"
#include "mapped_file.hpp"
#include "model.hpp"
#include "options.hpp"
#include "report.hpp"
#include "sampler.hpp"
#include "thread_team.hpp"
#include "tokenizer.hpp"
#include "unicode.hpp"
#include "weights.hpp"

namespace tilewise::generate {

namespace {

// Tokens of the prompt fed at once: their activations stay in the second-level cache while a panel of weights passes.
constexpr std::size_t kPromptChunk = 128;

class Clock {
public:
    double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Fails under the option's own name if a text of the command line cannot be written in the model's tokens.
void require_encodable(const Tokenizer& tokenizer, const std::string& text, const std::string& option) {
    try {
        tokenizer.encode(text);
    } catch (const std::runtime_error& error) {
        throw std::runtime_error(option + ": " + error.what());
    }
}

std::vector<std::int32_t> encode_prompt(const CommandLine& options, const Gguf& file, const Tokenizer& tokenizer) {
    require_encodable(tokenizer, options.prompt, "prompt");
    require_encodable(tokenizer, options.system.value_or(""), "system");
    auto ids = options.raw ? tokenizer.encode(options.prompt, SpecialTokens::kParse)
                           : encode_chat(file, tokenizer, options.prompt, options.system);
    if (ids.empty()) {
        throw std::runtime_error("prompt: holds no token; at least one is needed");
    }
    return ids;
}

void check_length(const CommandLine& options, std::size_t prompt_tokens, const ModelConfig& config) {
    if (static_cast<std::int64_t>(prompt_tokens) + options.tokens > config.context_length) {
        throw std::runtime_error("tokens: " + std::to_string(options.tokens) + " after a prompt of " +
                                 std::to_string(prompt_tokens) + " tokens; the model's context holds " +
                                 std::to_string(config.context_length));
    }
}

AttentionOptions attention_options(const CommandLine& options, int threads) {
    const bool oracle = options.attention == "oracle";
    if (oracle && options.device != "cpu") {
        throw std::runtime_error("attention: the oracle runs on the CPU; it cannot be asked for on " + options.device);
    }
    return {.device = options.device,
            .oracle = oracle,
            .cache_type = options.cache.type,
            .page_size = options.cache.paged ? options.cache.page_size : 0,
            .threads = threads};
}

// Prints tokens as they come: text in whole characters, or numbers.
class Printer {
public:
    Printer(const Tokenizer& tokenizer, bool ids) : tokenizer_(tokenizer), ids_(ids) {}

    void token(std::int32_t token) {
        write(ids_ ? std::to_string(token) + " " : stream_.push(tokenizer_.bytes(token)));
    }
    void finish() { write((ids_ ? std::string() : stream_.finish()) + "\n"); }

private:
    static void write(const std::string& text) {
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
    }

    const Tokenizer& tokenizer_;
    bool ids_;
    Utf8Stream stream_;
};

class Generation {
public:
    Generation(Model& model, const CachedAttention& attention) : model_(model), attention_(attention) {}

    std::span<const float> read_prompt(std::span<const std::int32_t> prompt) {
        PromptProgress progress(static_cast<std::int64_t>(prompt.size()));
        std::span<const float> logits;
        for (std::size_t begin = 0; begin < prompt.size(); begin += kPromptChunk) {
            logits = feed(prompt.subspan(begin, std::min(kPromptChunk, prompt.size() - begin)), prompt_);
            progress.update(prompt_.tokens);
        }
        return logits;
    }

    std::span<const float> continue_with(std::int32_t token) { return feed({&token, 1}, decode_); }

    void print_figures() const {
        print_stretch("prefill", prompt_);
        print_stretch("decode", decode_);
    }

private:
    std::span<const float> feed(std::span<const std::int32_t> tokens, Stretch& stretch) {
        const Clock clock;
        const double attention_before = attention_.seconds();
        const auto logits = model_.forward(tokens);
        stretch.tokens += static_cast<std::int64_t>(tokens.size());
        stretch.seconds += clock.seconds();
        stretch.attention_seconds += attention_.seconds() - attention_before;
        return logits;
    }

    Model& model_;
    const CachedAttention& attention_;
    Stretch prompt_;
    Stretch decode_;
};

void run(const CommandLine& options) {
    const MappedFile mapped(options.model);
    const Gguf file(mapped.bytes());
    const ModelConfig config = read_config(file);
    const Tokenizer tokenizer(file);
    const auto prompt = encode_prompt(options, file, tokenizer);
    check_length(options, prompt.size(), config);

    const int threads =
        options.threads > 0 ? options.threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    ThreadTeam team(threads);
    CachedAttention attention(config.heads, config.num_layers,
                              static_cast<std::int64_t>(prompt.size()) + options.tokens,
                              attention_options(options, threads));
    Model model(config, read_weights(file, config, tokenizer.size()), attention, team);
    Sampler sampler(options.sampling.greedy ? 0.0 : options.sampling.temperature, options.sampling.seed);

    Printer printer(tokenizer, options.print_ids);
    Generation generation(model, attention);
    std::span<const float> logits = generation.read_prompt(prompt);
    for (std::int64_t i = 0; i < options.tokens; ++i) {
        const std::int32_t token = sampler.next(logits);
        printer.token(token);
        if (tokenizer.ends_text(token) || i + 1 == options.tokens) {
            break;
        }
        logits = generation.continue_with(token);
    }
    printer.finish();
    std::fprintf(stderr, "\nattention by %s; linear layers by %s; %d threads\n", attention.description().c_str(),
                 kernels().name, threads);
    generation.print_figures();
}

}  // namespace

}  // namespace tilewise::generate

int main(int argc, char** argv) {
    const auto options = tilewise::generate::parse_options(argc, argv);
    try {
        tilewise::generate::run(options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "generate: %s\n", error.what());
        return 1;
    }
    return 0;
}
