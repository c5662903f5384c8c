// UTF-8 decoding and the three character classes that byte-pair tokenizers split text by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tilewise::generate {

enum class CharClass { kLetter, kNumber, kSpace, kOther };

struct CodePoint {
    char32_t value = 0;
    std::size_t bytes = 1;
    bool valid = true;  // false: `bytes` is 1 and `value` that byte
};

// The code point at `text[at]`, at < text.size(). Overlong forms, surrogates and cut sequences are invalid.
CodePoint decode_utf8(std::string_view text, std::size_t at);

// Appends the UTF-8 form of a valid code point.
void append_utf8(std::string& out, char32_t value);

CharClass classify(char32_t value);

// Turns a stream of bytes into valid UTF-8: a character whose bytes arrive in several pieces comes out when it is
// complete, and a byte that belongs to no character comes out as U+FFFD.
class Utf8Stream {
public:
    std::string push(std::string_view bytes);
    std::string finish();  // what is still held back, as U+FFFD

private:
    std::string held_;
};

}  // namespace tilewise::generate
