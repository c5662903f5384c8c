// Code points against sorted range tables; the white-space set is short enough to write out.
#include "unicode.hpp"

#include <algorithm>
#include <iterator>

namespace tilewise::generate {

namespace {

struct Range {
    char32_t first;
    char32_t last;
};

#include "unicode_ranges.inc"

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

template <std::size_t kCount> bool contains(const Range (&ranges)[kCount], char32_t value) {
    const auto* after = std::upper_bound(std::begin(ranges), std::end(ranges), value,
                                         [](char32_t v, const Range& range) { return v < range.first; });
    return after != std::begin(ranges) && value <= std::prev(after)->last;
}

bool is_space(char32_t c) {
    return (c >= 0x9 && c <= 0xd) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// Bytes that a character starting with `lead` takes; 0 if no character starts so.
std::size_t sequence_length(unsigned char lead) {
    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xc2 && lead <= 0xdf) {
        return 2;
    }
    if (lead >= 0xe0 && lead <= 0xef) {
        return 3;
    }
    return lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
}

// The first continuation byte is where overlong forms, surrogates and values past U+10FFFF show.
bool second_byte_fits(unsigned char lead, unsigned char second) {
    const unsigned char lowest = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned char highest = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    return second >= lowest && second <= highest;
}

// How many bytes at `text[at]` form a prefix of a character (the whole of it if that equals its length).
std::size_t matching_bytes(std::string_view text, std::size_t at, std::size_t length) {
    const auto lead = static_cast<unsigned char>(text[at]);
    std::size_t matched = 1;
    while (matched < length && at + matched < text.size()) {
        const auto next = static_cast<unsigned char>(text[at + matched]);
        const bool fits = matched == 1 ? second_byte_fits(lead, next) : (next & 0xc0) == 0x80;
        if (!fits) {
            break;
        }
        ++matched;
    }
    return matched;
}

}  // namespace

CodePoint decode_utf8(std::string_view text, std::size_t at) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const std::size_t length = sequence_length(lead);
    if (length == 0 || matching_bytes(text, at, length) != length) {
        return {lead, 1, false};
    }
    constexpr unsigned kLeadBits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    char32_t value = lead & kLeadBits[length];
    for (std::size_t i = 1; i < length; ++i) {
        value = value << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3fu);
    }
    return {value, length, true};
}

void append_utf8(std::string& out, char32_t value) {
    if (value < 0x80) {
        out += static_cast<char>(value);
        return;
    }
    const int continuation = value < 0x800 ? 1 : value < 0x10000 ? 2 : 3;
    constexpr unsigned kLead[] = {0, 0xc0, 0xe0, 0xf0};
    out += static_cast<char>(kLead[continuation] | (value >> (6 * continuation)));
    for (int i = continuation - 1; i >= 0; --i) {
        out += static_cast<char>(0x80u | ((value >> (6 * i)) & 0x3fu));
    }
}

CharClass classify(char32_t value) {
    if (is_space(value)) {
        return CharClass::kSpace;
    }
    if (contains(kLetters, value)) {
        return CharClass::kLetter;
    }
    return contains(kNumbers, value) ? CharClass::kNumber : CharClass::kOther;
}

std::string Utf8Stream::push(std::string_view bytes) {
    held_ += bytes;
    std::string out;
    std::size_t at = 0;
    while (at < held_.size()) {
        const std::size_t length = sequence_length(static_cast<unsigned char>(held_[at]));
        const std::size_t matched = length == 0 ? 0 : matching_bytes(held_, at, length);
        if (length != 0 && matched == length) {
            out.append(held_, at, length);
            at += length;
        } else if (length != 0 && at + matched == held_.size()) {
            break;  // may still become a character
        } else {
            out += kReplacement;
            at += std::max<std::size_t>(matched, 1);
        }
    }
    held_.erase(0, at);
    return out;
}

std::string Utf8Stream::finish() {
    const bool incomplete = !held_.empty();
    held_.clear();
    return incomplete ? std::string(kReplacement) : std::string();
}

}  // namespace tilewise::generate
