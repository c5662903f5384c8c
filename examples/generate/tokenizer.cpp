// Vocabulary and merge list from the file; encoding word by word, decoding token by token.
#include "tokenizer.hpp"

#include "unicode.hpp"

namespace tilewise::generate {

namespace {

constexpr std::int64_t kControlType = 3;
constexpr std::int64_t kUserDefinedType = 4;
constexpr std::size_t kMaxTokens = 1u << 24;

// The vocabulary writes bytes as visible characters: printable Latin-1 stands for itself, the other 68 byte values take
// the code points from U+0100 on, in order.
bool stands_for_itself(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

class ByteAlphabet {
public:
    ByteAlphabet() {
        char32_t next = 0x100;
        for (unsigned byte = 0; byte < 256; ++byte) {
            bytes_.emplace(stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++, static_cast<char>(byte));
        }
    }

    // The bytes that a vocabulary entry stands for. Text outside the alphabet stands for itself.
    std::string decode(std::string_view text) const {
        std::string out;
        for (std::size_t at = 0; at < text.size();) {
            const CodePoint point = decode_utf8(text, at);
            const auto found = bytes_.find(point.value);
            if (!point.valid || found == bytes_.end()) {
                return std::string(text);
            }
            out += found->second;
            at += point.bytes;
        }
        return out;
    }

private:
    std::unordered_map<char32_t, char> bytes_;
};

bool reads_digits_singly(const Gguf& file) {
    if (const auto model = file.string("tokenizer.ggml.model"); model != "gpt2") {
        throw GgufError("tokenizer.ggml.model: \"" + printable(model) + "\"; \"gpt2\" (byte-level BPE) is allowed");
    }
    const auto splitter = file.string("tokenizer.ggml.pre");
    if (splitter != "smollm" && splitter != "gpt-2") {
        throw GgufError("tokenizer.ggml.pre: \"" + printable(splitter) + "\"; \"smollm\" and \"gpt-2\" are allowed");
    }
    return splitter == "smollm";
}

}  // namespace

Tokenizer::Tokenizer(const Gguf& file) : split_digits_(reads_digits_singly(file)) {
    if (file.boolean_or("tokenizer.ggml.add_space_prefix", false)) {
        throw GgufError("tokenizer.ggml.add_space_prefix: true; false is allowed");
    }
    if (file.boolean_or("tokenizer.ggml.add_bos_token", false)) {
        throw GgufError("tokenizer.ggml.add_bos_token: true; false is allowed");
    }
    std::unordered_map<std::string, std::int32_t> ids;
    read_vocabulary(file, ids);
    read_merges(file, ids);
    const std::int64_t end = file.integer("tokenizer.ggml.eos_token_id");
    if (end < 0 || end >= size()) {
        throw GgufError("tokenizer.ggml.eos_token_id: " + std::to_string(end) + ", but the vocabulary has " +
                        std::to_string(size()) + " tokens");
    }
    end_of_text_ = static_cast<std::int32_t>(end);
}

void Tokenizer::read_vocabulary(const Gguf& file, std::unordered_map<std::string, std::int32_t>& ids) {
    const auto tokens = file.strings("tokenizer.ggml.tokens");
    const auto types = file.integers("tokenizer.ggml.token_type");
    if (tokens.empty() || tokens.size() > kMaxTokens) {
        throw GgufError("tokenizer.ggml.tokens: " + std::to_string(tokens.size()) + " tokens; 1 to " +
                        std::to_string(kMaxTokens) + " are allowed");
    }
    if (types.size() != tokens.size()) {
        throw GgufError("tokenizer.ggml.token_type: " + std::to_string(types.size()) + " entries for " +
                        std::to_string(tokens.size()) + " tokens; one each is needed");
    }
    const ByteAlphabet alphabet;
    byte_tokens_.fill(-1);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto id = static_cast<std::int32_t>(i);
        if (types[i] == kControlType || types[i] == kUserDefinedType) {
            if (!tokens[i].empty()) {
                controls_.emplace(tokens[i], id);
            }
            bytes_.emplace_back(types[i] == kControlType ? std::string_view() : tokens[i]);
            continue;
        }
        ids.emplace(tokens[i], id);
        bytes_.push_back(alphabet.decode(tokens[i]));
        if (bytes_.back().size() == 1) {
            byte_tokens_[static_cast<unsigned char>(bytes_.back()[0])] = id;
        }
    }
}

void Tokenizer::read_merges(const Gguf& file, const std::unordered_map<std::string, std::int32_t>& ids) {
    const auto merges = file.strings("tokenizer.ggml.merges");
    if (merges.size() > kMaxTokens) {
        throw GgufError("tokenizer.ggml.merges: " + std::to_string(merges.size()) + " merges; up to " +
                        std::to_string(kMaxTokens) + " are allowed");
    }
    const auto id_of = [&](std::string_view text, std::size_t rank) {
        const auto found = ids.find(std::string(text));
        if (found == ids.end()) {
            throw GgufError("tokenizer.ggml.merges: merge " + std::to_string(rank) + " names \"" + printable(text) +
                            "\", which is not in tokenizer.ggml.tokens");
        }
        return found->second;
    };
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
        const std::size_t space = merges[rank].find(' ');
        if (space == std::string_view::npos) {
            throw GgufError("tokenizer.ggml.merges: merge " + std::to_string(rank) + " is \"" +
                            printable(merges[rank]) + "\"; two parts with a space between them are needed");
        }
        const auto left = merges[rank].substr(0, space);
        const auto right = merges[rank].substr(space + 1);
        const std::int32_t whole = id_of(std::string(left) + std::string(right), rank);
        merges_.add(id_of(left, rank), id_of(right, rank), {static_cast<std::int32_t>(rank), whole});
    }
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
    std::vector<std::int32_t> out;
    std::size_t plain = 0;
    for (std::size_t at = 0; special == SpecialTokens::kParse && at < text.size();) {
        std::size_t longest = 0;
        std::int32_t token = -1;
        for (const auto& [name, id] : controls_) {
            if (name.size() > longest && text.substr(at, name.size()) == name) {
                longest = name.size();
                token = id;
            }
        }
        if (longest == 0) {
            ++at;
            continue;
        }
        encode_plain(text.substr(plain, at - plain), out);
        out.push_back(token);
        at += longest;
        plain = at;
    }
    encode_plain(text.substr(plain), out);
    return out;
}

void Tokenizer::encode_plain(std::string_view text, std::vector<std::int32_t>& out) const {
    for (const std::string_view word : split_words(text, split_digits_)) {
        encode_word(word, out);
    }
}

void Tokenizer::encode_word(std::string_view word, std::vector<std::int32_t>& out) const {
    std::vector<std::int32_t> tokens;
    for (const char c : word) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte_tokens_[byte] < 0) {
            throw std::runtime_error("holds the byte " + std::to_string(byte) +
                                     ", for which the model's vocabulary has no token");
        }
        tokens.push_back(byte_tokens_[byte]);
    }
    tokens = merges_.apply(tokens);
    out.insert(out.end(), tokens.begin(), tokens.end());
}

bool Tokenizer::ends_text(std::int32_t token) const { return token == end_of_text_ || bytes(token).empty(); }

std::string_view Tokenizer::bytes(std::int32_t token) const {
    if (token < 0 || token >= size()) {
        throw std::runtime_error("token: " + std::to_string(token) + "; 0 to " + std::to_string(size() - 1) +
                                 " are in the vocabulary");
    }
    return bytes_[static_cast<std::size_t>(token)];
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& tokens) const {
    std::string out;
    for (const std::int32_t token : tokens) {
        out += bytes(token);
    }
    return out;
}

std::int32_t Tokenizer::control(std::string_view name) const {
    const auto found = controls_.find(name);
    if (found == controls_.end()) {
        throw GgufError("tokenizer.ggml.tokens: has no control token \"" + printable(name) + "\"");
    }
    return found->second;
}

}  // namespace tilewise::generate
