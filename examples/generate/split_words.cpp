// The word splitter of the GPT-2 family, written as a scanner over character classes. A word is the first that fits of
//   a contraction: 's 't 're 've 'm 'll 'd
//   letters, numbers, or other visible characters: one run of a single class, with the one space before it
//   white space: a run; when a visible character follows, the run leaves its last character to the next word
//
// With `split_digits` every numeric character is a word of its own and the text between two of them is split as if it
// stood alone, so that a space before a digit does not join it.
#include "tokenizer.hpp"
#include "unicode.hpp"

namespace tilewise::generate {

namespace {

struct Character {
    std::size_t begin;
    std::size_t end;
    CharClass char_class;
};

Character character_at(std::string_view text, std::size_t at) {
    const CodePoint point = decode_utf8(text, at);
    return {at, at + point.bytes, point.valid ? classify(point.value) : CharClass::kOther};
}

std::size_t contraction_length(std::string_view rest) {
    for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
        if (rest.substr(0, ending.size()) == ending) {
            return ending.size();
        }
    }
    return 0;
}

std::size_t end_of_run(std::string_view text, std::size_t at, CharClass char_class) {
    while (at < text.size()) {
        const Character next = character_at(text, at);
        if (next.char_class != char_class) {
            break;
        }
        at = next.end;
    }
    return at;
}

std::size_t end_of_space(std::string_view text, std::size_t begin) {
    std::size_t last = begin;  // where the run's last character starts
    std::size_t at = begin;
    while (at < text.size()) {
        const Character next = character_at(text, at);
        if (next.char_class != CharClass::kSpace) {
            break;
        }
        last = at;
        at = next.end;
    }
    return at < text.size() && last > begin ? last : at;
}

std::size_t end_of_word(std::string_view text, std::size_t at) {
    if (const std::size_t length = contraction_length(text.substr(at)); length != 0) {
        return at + length;
    }
    const std::size_t visible = text[at] == ' ' && at + 1 < text.size() ? at + 1 : at;
    const Character first = character_at(text, visible);
    return first.char_class == CharClass::kSpace ? end_of_space(text, at) : end_of_run(text, visible, first.char_class);
}

void split_segment(std::string_view text, std::vector<std::string_view>& words) {
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = end_of_word(text, at);
        words.push_back(text.substr(at, end - at));
        at = end;
    }
}

}  // namespace

std::vector<std::string_view> split_words(std::string_view text, bool split_digits) {
    std::vector<std::string_view> words;
    std::size_t segment = 0;
    for (std::size_t at = 0; split_digits && at < text.size();) {
        const Character next = character_at(text, at);
        if (next.char_class == CharClass::kNumber) {
            split_segment(text.substr(segment, at - segment), words);
            words.push_back(text.substr(next.begin, next.end - next.begin));
            segment = next.end;
        }
        at = next.end;
    }
    split_segment(text.substr(segment), words);
    return words;
}

}  // namespace tilewise::generate
