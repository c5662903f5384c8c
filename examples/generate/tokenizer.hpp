// Byte-level BPE, from the vocabulary and merges of a GGUF file: text <-> token ids.
//
// Text is split into words (contractions, letters, numbers, punctuation, white space), each word's bytes become tokens of
// one byte, and neighbours merge in the order of the merge list until none applies. Any bytes can be encoded, UTF-8 or
// not, as long as the vocabulary has a token for each single byte; one that it lacks is an error, never dropped.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bpe.hpp"
#include "gguf.hpp"

namespace tilewise::generate {

// Whether "<|im_start|>" and the like in a text mean the control token or the characters. Text from a user is plain.
enum class SpecialTokens { kPlainText, kParse };

class Tokenizer {
public:
    explicit Tokenizer(const Gguf& file);

    // Throws std::runtime_error for a byte that the vocabulary lacks; the message leaves it to the caller to name the text.
    std::vector<std::int32_t> encode(std::string_view text, SpecialTokens special = SpecialTokens::kPlainText) const;

    // The bytes of a token; a character may spread over several tokens. Control tokens have no text: empty.
    std::string_view bytes(std::int32_t token) const;
    std::string decode(const std::vector<std::int32_t>& tokens) const;

    std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }

    // Whether generation stops at this token: the model's end of text, or any control token, which starts a new turn.
    bool ends_text(std::int32_t token) const;

    // The id of a control token by its name; throws if the vocabulary has none.
    std::int32_t control(std::string_view name) const;

private:
    void read_vocabulary(const Gguf& file, std::unordered_map<std::string, std::int32_t>& ids);
    void read_merges(const Gguf& file, const std::unordered_map<std::string, std::int32_t>& ids);
    void encode_plain(std::string_view text, std::vector<std::int32_t>& out) const;
    void encode_word(std::string_view word, std::vector<std::int32_t>& out) const;

    bool split_digits_ = false;
    std::int32_t end_of_text_ = -1;
    std::vector<std::string> bytes_;               // by token id
    std::array<std::int32_t, 256> byte_tokens_{};  // -1: the vocabulary lacks the byte
    MergeTable merges_;
    std::map<std::string, std::int32_t, std::less<>> controls_;  // control and user-defined tokens, by name
};

// The words that BPE may not cross, in order; their concatenation is `text`.
std::vector<std::string_view> split_words(std::string_view text, bool split_digits);

}  // namespace tilewise::generate
