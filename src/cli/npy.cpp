// Parses and writes .npy headers. The header is a Python dictionary literal; the parser takes exactly the three keys and the
// value forms that the format defines, and reports everything else with its position.
#include "npy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>

#include "error.hpp"

namespace tilewise::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
// numpy's own headers are around 100 bytes; the limit only keeps a damaged length from asking for gigabytes.
constexpr int64_t kMaxHeaderBytes = 1 << 20;
// An array of more axes cannot be an argument of any call.
constexpr size_t kMaxAxes = 32;

struct Header {
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<int64_t>> shape;
};

class HeaderParser {
public:
    HeaderParser(const std::string& file, std::string_view text) : file_(file), text_(text) {}

    Header parse() {
        Header header;
        expect('{');
        while (!accept('}')) {
            const std::string key = quoted();
            expect(':');
            value_of(key, header);
            if (!accept(',')) {
                expect('}');
                break;
            }
        }
        skip_space();
        if (at_ != text_.size()) fail("text follows the dictionary");
        if (!header.descr) fail("'descr' is missing");
        if (!header.fortran_order) fail("'fortran_order' is missing");
        if (!header.shape) fail("'shape' is missing");
        return header;
    }

private:
    [[noreturn]] void fail(const std::string& what) const {
        throw Failure(fmt::format("{}: header: {} (at byte {} of {})", file_, what, at_, text_.size()));
    }
    void skip_space() {
        while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
    }
    bool accept(char wanted) {
        skip_space();
        if (at_ >= text_.size() || text_[at_] != wanted) return false;
        ++at_;
        return true;
    }
    void expect(char wanted) {
        if (accept(wanted)) return;
        const std::string found = at_ < text_.size() ? printable(text_.substr(at_, 1)) : "the end";
        fail(fmt::format("'{}' is expected, found {}", wanted, found));
    }
    // Bytes of a damaged file must not reach the terminal as they are.
    static std::string printable(std::string_view raw) {
        std::string out = "'";
        for (const char c : raw.substr(0, 40)) {
            const auto byte = static_cast<unsigned char>(c);
            out += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
        }
        return out + "'";
    }

    std::string quoted() {
        skip_space();
        const char quote = at_ < text_.size() ? text_[at_] : '\0';
        if (quote != '\'' && quote != '"') fail("a quoted string is expected");
        const size_t end = text_.find(quote, at_ + 1);
        if (end == std::string_view::npos) fail("a string does not end");
        const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
        at_ = end + 1;
        return std::string(inside);
    }
    bool boolean() {
        skip_space();
        for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
            if (text_.substr(at_, word.size()) == word) {
                at_ += word.size();
                return value;
            }
        }
        fail("'fortran_order' is neither True nor False");
    }
    int64_t integer() {
        skip_space();
        const size_t start = at_;
        int64_t value = 0;
        while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
            if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
                __builtin_add_overflow(value, int64_t{text_[at_] - '0'}, &value)) {
                fail("'shape' has a number of more than 63 bits");
            }
            ++at_;
        }
        if (at_ == start) fail("'shape' has something else than a number");
        return value;
    }
    std::vector<int64_t> tuple() {
        std::vector<int64_t> values;
        expect('(');
        while (!accept(')')) {
            if (values.size() == kMaxAxes) fail(fmt::format("'shape' has more than {} axes", kMaxAxes));
            values.push_back(integer());
            if (!accept(',')) {
                expect(')');
                break;
            }
        }
        return values;
    }
    void value_of(const std::string& key, Header& header) {
        skip_space();
        if (key == "descr" && !header.descr) {
            if (at_ < text_.size() && text_[at_] == '[') fail("'descr' is a record type; plain arrays are allowed");
            header.descr = quoted();
        } else if (key == "fortran_order" && !header.fortran_order) {
            header.fortran_order = boolean();
        } else if (key == "shape" && !header.shape) {
            header.shape = tuple();
        } else {
            fail(fmt::format("key {} is unknown or given twice", printable(key)));
        }
    }

    const std::string& file_;
    std::string_view text_;
    size_t at_ = 0;
};

struct NumpyType {
    std::string_view code;  // without the byte order
    DType dtype;
};
constexpr std::array kNumpyTypes{
    NumpyType{"f4", DType::kF32},  NumpyType{"f2", DType::kF16}, NumpyType{"V2", DType::kBF16},
    NumpyType{"f8", DType::kF64},  NumpyType{"i4", DType::kI32}, NumpyType{"i8", DType::kI64},
    NumpyType{"b1", DType::kBool},
};

DType dtype_of(const std::string& file, const std::string& descr) {
    const char order = descr.empty() ? '\0' : descr[0];
    const bool has_order = order == '<' || order == '>' || order == '|' || order == '=';
    const std::string_view code = has_order ? std::string_view(descr).substr(1) : std::string_view(descr);
    for (const NumpyType& type : kNumpyTypes) {
        if (type.code != code) continue;
        // '>' means nothing for a type of one byte, and V2 carries no order of its own.
        if (order == '>' && size_of(type.dtype) > 1) {
            throw Failure(fmt::format("{}: descr: '{}' is big-endian; little-endian is allowed", file, descr));
        }
        return type.dtype;
    }
    std::string shown;
    for (const char c : descr.substr(0, 40)) shown += c >= 0x20 && c < 0x7f ? c : '?';
    throw Failure(fmt::format(
        "{}: descr: '{}' is not supported; allowed are <f4, <f2, V2 (bf16), <f8, <i4, <i8 and |b1", file, shown));
}

// Bytes in front of the dictionary and the dictionary's length.
struct Preamble {
    int64_t bytes = 0;
    int64_t header_bytes = 0;
};

Preamble read_preamble(const ByteSource& source) {
    std::array<std::byte, 12> raw{};
    if (source.size() < 10) {
        throw Failure(
            fmt::format("{}: magic: the file has {} bytes; a .npy file has at least 10", source.name(), source.size()));
    }
    source.read(0, std::span(raw).first(static_cast<size_t>(std::min<int64_t>(source.size(), 12))));
    if (std::memcmp(raw.data(), kMagic.data(), kMagic.size()) != 0) {
        throw Failure(
            fmt::format("{}: magic: the file does not begin with \\x93NUMPY, so it is not a .npy file", source.name()));
    }
    const auto byte = [&raw](size_t i) { return std::to_integer<int64_t>(raw[i]); };
    const int64_t major = byte(6);
    const int64_t minor = byte(7);
    if (major < 1 || major > 3 || minor != 0) {
        throw Failure(
            fmt::format("{}: version: {}.{} is unknown; allowed are 1.0, 2.0 and 3.0", source.name(), major, minor));
    }
    Preamble preamble{10, byte(8) | byte(9) << 8};
    if (major > 1) {
        if (source.size() < 12)
            throw Failure(fmt::format("{}: header length: the file ends inside of it", source.name()));
        preamble = {12, byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24};
    }
    if (preamble.header_bytes > std::min(kMaxHeaderBytes, source.size() - preamble.bytes)) {
        throw Failure(fmt::format("{}: header length: {} bytes, but {} follow it and at most {} are allowed",
                                  source.name(), preamble.header_bytes, source.size() - preamble.bytes,
                                  kMaxHeaderBytes));
    }
    return preamble;
}

}  // namespace

HostTensor read_npy(const ByteSource& source) {
    const Preamble preamble = read_preamble(source);
    std::string text(static_cast<size_t>(preamble.header_bytes), '\0');
    source.read(preamble.bytes, std::as_writable_bytes(std::span(text)));
    const Header header = HeaderParser(source.name(), text).parse();

    const DType dtype = dtype_of(source.name(), *header.descr);
    const std::string shape_name = source.name() + ": shape";
    const int64_t wanted = byte_count(shape_name, dtype, *header.shape);
    const int64_t start = preamble.bytes + preamble.header_bytes;
    if (wanted != source.size() - start) {
        throw Failure(fmt::format("{}: {} of {} is {} bytes, but {} follow the header{}", shape_name,
                                  shape_text(*header.shape), name_of(dtype), wanted, source.size() - start,
                                  wanted > source.size() - start ? "; the file is cut off or damaged" : ""));
    }
    std::vector<int> order(header.shape->size());
    std::iota(order.begin(), order.end(), 0);
    if (*header.fortran_order) std::reverse(order.begin(), order.end());
    HostTensor tensor = HostTensor::with_order(source.name(), dtype, *header.shape, order);
    source.read(start, tensor.bytes());
    return tensor;
}

std::string npy_header(DType dtype, std::span<const int64_t> shape) {
    std::string_view code;
    for (const NumpyType& type : kNumpyTypes) {
        if (type.dtype == dtype) code = type.code;
    }
    if (code.empty()) throw Failure(fmt::format("dtype: {} cannot be written to a .npy file", name_of(dtype)));
    std::string axes;
    for (const int64_t extent : shape) axes += fmt::format("{}, ", extent);
    // A tuple of one element keeps its comma in Python; the others may not end in ", ".
    if (shape.size() == 1) axes.pop_back();
    if (shape.size() > 1) axes.resize(axes.size() - 2);

    std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                     dtype == DType::kBool ? '|' : '<', code, axes);
    const size_t fixed = kMagic.size() + 4;
    const size_t total = (fixed + header.size() + 1 + 63) / 64 * 64;
    header.resize(total - fixed - 1, ' ');
    header += '\n';
    std::string out(kMagic);
    out += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
    return out + header;
}

}  // namespace tilewise::cli
