// Turns as token ids. What a user wrote is encoded as plain text, so it cannot end its own turn or start another.
#include "chat.hpp"

#include <string_view>

namespace tilewise::generate {

namespace {

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";

void add_turn(const Tokenizer& tokenizer, std::string_view role, const std::string& content,
              std::vector<std::int32_t>& out) {
    const auto append = [&](const std::vector<std::int32_t>& tokens) {
        out.insert(out.end(), tokens.begin(), tokens.end());
    };
    out.push_back(tokenizer.control(kStart));
    append(tokenizer.encode(std::string(role) + "\n" + content));
    out.push_back(tokenizer.control(kEnd));
    append(tokenizer.encode("\n"));
}

// The system message that the template writes when a conversation has none; empty if it writes none.
std::string default_system(std::string_view chat_template) {
    const std::string opening = std::string(kStart) + "system\n";
    const std::size_t found = chat_template.find(opening);
    if (found == std::string_view::npos) {
        return {};
    }
    const std::size_t begin = found + opening.size();
    const std::size_t end = chat_template.find(kEnd, begin);
    return end == std::string_view::npos ? std::string() : std::string(chat_template.substr(begin, end - begin));
}

}  // namespace

std::vector<std::int32_t> encode_chat(const Gguf& file, const Tokenizer& tokenizer, const std::string& prompt,
                                      const std::optional<std::string>& system) {
    const std::string_view chat_template = file.string("tokenizer.chat_template");
    if (chat_template.find(kStart) == std::string_view::npos || chat_template.find(kEnd) == std::string_view::npos) {
        throw GgufError("tokenizer.chat_template: \"" + printable(chat_template) +
                        "\"; a template of <|im_start|> and <|im_end|> turns is allowed, or --raw for none");
    }
    std::vector<std::int32_t> out;
    const std::string message = system ? *system : default_system(chat_template);
    if (!message.empty()) {
        add_turn(tokenizer, "system", message, out);
    }
    add_turn(tokenizer, "user", prompt, out);
    out.push_back(tokenizer.control(kStart));
    const auto answer = tokenizer.encode("assistant\n");
    out.insert(out.end(), answer.begin(), answer.end());
    return out;
}

}  // namespace tilewise::generate
