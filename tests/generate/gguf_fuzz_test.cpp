// Damaged files: a small model is cut short and has bits flipped, bytes replaced and counts blown up, thousands of times.
// Each result either loads or is refused with a message; whatever loads is then used in full. Meant for AddressSanitizer:
// every file lies in a heap block of exactly its size.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <random>

#include "chat.hpp"
#include "config.hpp"
#include "synthetic_gguf.hpp"
#include "tokenizer.hpp"
#include "weights.hpp"

namespace tilewise::generate {
namespace {

constexpr std::uint64_t kSeed = 20240229;
constexpr int kRounds = 20000;

void use_matrix(const Matrix& matrix) {
    std::vector<float> row(static_cast<std::size_t>(matrix.cols));
    dequantize_row(matrix, 0, row);
    dequantize_row(matrix, matrix.rows - 1, row);
}

void use_everything(std::span<const std::byte> bytes) {
    const Gguf file(bytes);
    const ModelConfig config = read_config(file);
    const Tokenizer tokenizer(file);
    const auto ids = encode_chat(file, tokenizer, "in the 12 \xf0\x9f\x99\x82 <|im_end|>", std::nullopt);
    tokenizer.decode(ids);
    tokenizer.encode("a <|im_start|> b", SpecialTokens::kParse);
    const Weights weights = read_weights(file, config, tokenizer.size());
    use_matrix(weights.embedding);
    use_matrix(weights.output);
    for (const LayerWeights& layer : weights.layers) {
        for (const Matrix* matrix :
             {&layer.q, &layer.k, &layer.v, &layer.attention_output, &layer.gate, &layer.up, &layer.down}) {
            use_matrix(*matrix);
        }
    }
}

struct Outcome {
    int loaded = 0;
    int refused = 0;

    void try_file(const Bytes& bytes) {
        const auto exact = std::make_unique<std::byte[]>(bytes.size());
        std::copy(bytes.begin(), bytes.end(), exact.get());
        try {
            use_everything({exact.get(), bytes.size()});
            ++loaded;
        } catch (const std::runtime_error& error) {
            // Every message begins with a key or a tensor; only a text's bytes that the vocabulary lacks are the caller's
            // to name.
            const std::string message = error.what();
            EXPECT_TRUE(message.find(':') != std::string::npos || message.starts_with("holds the byte")) << message;
            ++refused;
        }
    }
};

class Damage {
public:
    explicit Damage(std::uint64_t seed) : random_(seed) {}

    void flip_bits(Bytes& file) {
        for (std::size_t flips = 1 + below(4); flips > 0; --flips) {
            file[place(file)] ^= static_cast<std::byte>(1u << below(8));
        }
    }
    void replace_bytes(Bytes& file) {
        for (std::size_t count = 1 + below(8); count > 0; --count) {
            file[place(file)] = static_cast<std::byte>(below(256));
        }
    }
    // Eight bytes at a time are what lengths, counts, dimensions and offsets are made of.
    void replace_word(Bytes& file) {
        constexpr std::uint64_t kWords[] = {
            0, 1, 31, 0x7fffffff, 0xffffffff, std::uint64_t{1} << 60, ~std::uint64_t{0}};
        Bytes word;
        append(word, kWords[below(std::size(kWords))]);
        std::copy(word.begin(), word.end(), file.begin() + static_cast<std::ptrdiff_t>(place(file) & ~std::size_t{7}));
    }
    void cut(Bytes& file) { file.resize(below(file.size())); }

private:
    std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }
    // Half of the damage goes where the structure is, into the first kilobyte; the rest anywhere.
    std::size_t place(const Bytes& file) {
        return below(below(2) == 0 ? std::min<std::size_t>(file.size(), 1024) : file.size() - 8);
    }

    std::mt19937_64 random_;
};

TEST(GgufFuzz, TheUndamagedModelLoads) {
    Outcome outcome;
    outcome.try_file(small_model().file());
    EXPECT_EQ(outcome.loaded, 1);
}

TEST(GgufFuzz, EveryTruncationIsRefused) {
    const Bytes whole = small_model().file();
    Outcome outcome;
    // The last tensor ends the file but for its padding, so every cut but one in the padding loses something.
    const std::size_t needed = whole.size() - 31;
    for (std::size_t size = 0; size < needed; size += size < 1024 ? 1 : 97) {
        outcome.try_file(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    }
    EXPECT_EQ(outcome.loaded, 0);
    EXPECT_GT(outcome.refused, 1000);
}

TEST(GgufFuzz, DamagedFilesLoadOrAreRefused) {
    std::cout << "seed " << kSeed << "\n";
    const Bytes whole = small_model().file();
    Damage damage(kSeed);
    Outcome outcome;
    for (int round = 0; round < kRounds; ++round) {
        Bytes file = whole;
        switch (round % 4) {
        case 0: damage.flip_bits(file); break;
        case 1: damage.replace_bytes(file); break;
        case 2: damage.replace_word(file); break;
        default:
            damage.flip_bits(file);
            damage.cut(file);
            break;
        }
        outcome.try_file(file);
    }
    std::cout << outcome.loaded << " loaded, " << outcome.refused << " refused\n";
    EXPECT_GT(outcome.loaded, kRounds / 20) << "damage that only hits weights must still load";
    EXPECT_GT(outcome.refused, kRounds / 4);
}

}  // namespace
}  // namespace tilewise::generate
