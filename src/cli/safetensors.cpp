// Parses and writes .safetensors headers; each message names the file, the tensor's field and the value found there.
#include "safetensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "error.hpp"

namespace tilewise::cli {
namespace {

using Json = nlohmann::ordered_json;

// The format's own limit.
constexpr int64_t kMaxHeaderBytes = 100'000'000;
constexpr int64_t kLengthBytes = 8;
constexpr std::string_view kMetadata = "__metadata__";

struct StoredType {
    std::string_view name;
    DType dtype;
};
constexpr std::array kStoredTypes{
    StoredType{"F32", DType::kF32},   StoredType{"F16", DType::kF16}, StoredType{"BF16", DType::kBF16},
    StoredType{"F64", DType::kF64},   StoredType{"I32", DType::kI32}, StoredType{"I64", DType::kI64},
    StoredType{"BOOL", DType::kBool},
};

// Names come from the file and go to a terminal: control bytes are replaced, length is bounded.
std::string shown(const std::string& raw) {
    std::string out;
    for (const char c : raw.substr(0, 60)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    return raw.size() > 60 ? out + "..." : out;
}

// A JSON object may repeat a key and most parsers keep the last; two tensors of one name are a damaged file. Nesting beyond
// what the format needs is refused while parsing.
Json parse_header(const ByteSource& source, const std::string& text) {
    std::set<std::string> names;
    std::string duplicate;
    const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
        if (depth > 4) throw Failure(fmt::format("{}: header: is nested deeper than the format allows", source.name()));
        if (depth == 1 && event == Json::parse_event_t::key && !names.insert(value.get<std::string>()).second) {
            duplicate = value.get<std::string>();
        }
        return true;
    };
    Json header;
    try {
        header = Json::parse(text, watch);
    } catch (const Json::parse_error& error) {
        throw Failure(fmt::format("{}: header: is not JSON (near byte {})", source.name(), error.byte));
    }
    if (!duplicate.empty()) throw Failure(fmt::format("{}: header: names {} twice", source.name(), shown(duplicate)));
    if (!header.is_object()) throw Failure(fmt::format("{}: header: is not a JSON object", source.name()));
    return header;
}

class EntryReader {
public:
    EntryReader(const ByteSource& source, const std::string& name, const Json& value, int64_t data_bytes)
        : where_(source.name() + ": " + shown(name)), value_(value), data_bytes_(data_bytes) {
        entry_.name = name;
    }

    SafetensorsEntry read() {
        if (!value_.is_object()) throw Failure(where_ + ": is not a JSON object");
        const Json& type = member("dtype");
        if (!type.is_string()) throw Failure(where_ + ": dtype: is not a string");
        entry_.type = type.get<std::string>();
        entry_.shape = integers("shape");
        const std::vector<int64_t> offsets = integers("data_offsets");
        if (offsets.size() != 2)
            throw Failure(fmt::format("{}: data_offsets: has {} numbers, not 2", where_, offsets.size()));
        entry_.begin = offsets[0];
        entry_.end = offsets[1];
        if (entry_.begin > entry_.end || entry_.end > data_bytes_) {
            throw Failure(fmt::format("{}: data_offsets: [{}, {}] does not lie in the {} bytes of data", where_,
                                      entry_.begin, entry_.end, data_bytes_));
        }
        return entry_;
    }

private:
    const Json& member(const char* key) const {
        const auto found = value_.find(key);
        if (found == value_.end()) throw Failure(fmt::format("{}: {}: is missing", where_, key));
        return *found;
    }
    std::vector<int64_t> integers(const char* key) const {
        const Json& list = member(key);
        if (!list.is_array()) throw Failure(fmt::format("{}: {}: is not a list", where_, key));
        std::vector<int64_t> values;
        for (const Json& item : list) {
            // Integers above 63 bits arrive unsigned and would wrap in get<int64_t>.
            const bool fits =
                item.is_number_integer() && (!item.is_number_unsigned() || item.get<uint64_t>() <= INT64_MAX);
            if (!fits || item.get<int64_t>() < 0) {
                throw Failure(fmt::format("{}: {}: {} is not a size", where_, key, shown(item.dump(-1, ' ', true))));
            }
            values.push_back(item.get<int64_t>());
        }
        return values;
    }

    std::string where_;
    const Json& value_;
    int64_t data_bytes_;
    SafetensorsEntry entry_;
};

}  // namespace

SafetensorsFile::SafetensorsFile(const ByteSource& source) : source_(source) {
    if (source.size() < kLengthBytes) {
        throw Failure(fmt::format("{}: header length: the file has {} bytes; a .safetensors file has at least {}",
                                  source.name(), source.size(), kLengthBytes));
    }
    std::array<std::byte, kLengthBytes> raw{};
    source.read(0, raw);
    uint64_t length = 0;
    for (size_t i = raw.size(); i-- > 0;) length = length << 8 | std::to_integer<uint64_t>(raw[i]);
    const int64_t rest = source.size() - kLengthBytes;
    if (length > static_cast<uint64_t>(std::min(rest, kMaxHeaderBytes))) {
        throw Failure(fmt::format("{}: header length: {} bytes, but {} follow it and at most {} are allowed",
                                  source.name(), length, rest, kMaxHeaderBytes));
    }
    std::string text(length, '\0');
    source.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
    data_start_ = kLengthBytes + static_cast<int64_t>(length);
    const Json header = parse_header(source, text);
    for (const auto& [name, value] : header.items()) {
        if (name != kMetadata) entries_.push_back(EntryReader(source, name, value, source.size() - data_start_).read());
    }
}

HostTensor SafetensorsFile::read(const std::string& name) const {
    const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) { return e.name == name; });
    if (entry == entries_.end()) {
        std::vector<std::string> names;
        for (const SafetensorsEntry& e : entries_) {
            if (names.size() == 20) break;
            names.push_back(shown(e.name));
        }
        throw Failure(fmt::format("{}: has no tensor \"{}\"; it holds {}{}", source_.name(), shown(name),
                                  names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")),
                                  names.size() < entries_.size() ? ", ..." : ""));
    }
    const std::string where = source_.name() + ": " + shown(name);
    DType dtype = DType::kNone;
    for (const StoredType& type : kStoredTypes) {
        if (type.name == entry->type) dtype = type.dtype;
    }
    if (dtype == DType::kNone) {
        throw Failure(fmt::format("{}: dtype: {} is not supported; allowed are F32, F16, BF16, F64, I32, I64 and BOOL",
                                  where, shown(entry->type)));
    }
    const int64_t wanted = byte_count(where + ": shape", dtype, entry->shape);
    if (wanted != entry->end - entry->begin) {
        throw Failure(fmt::format("{}: data_offsets: [{}, {}] holds {} bytes, but {} of {} is {}", where, entry->begin,
                                  entry->end, entry->end - entry->begin, shape_text(entry->shape), name_of(dtype),
                                  wanted));
    }
    HostTensor tensor(where, dtype, entry->shape);
    source_.read(data_start_ + entry->begin, tensor.bytes());
    return tensor;
}

std::string safetensors_header(std::span<const TensorToWrite> tensors) {
    Json header = Json::object();
    int64_t begin = 0;
    for (const TensorToWrite& tensor : tensors) {
        std::string type;
        for (const StoredType& stored : kStoredTypes) {
            if (stored.dtype == tensor.dtype) type = stored.name;
        }
        if (type.empty())
            throw Failure(fmt::format("dtype: {} cannot be written to a .safetensors file", name_of(tensor.dtype)));
        const int64_t end = begin + byte_count(tensor.name, tensor.dtype, tensor.shape);
        header[tensor.name] = {{"dtype", type}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
        begin = end;
    }
    std::string text = header.dump();
    const size_t total = (kLengthBytes + text.size() + 63) / 64 * 64;
    text.resize(total - kLengthBytes, ' ');
    std::string out;
    for (int i = 0; i < kLengthBytes; ++i) out += static_cast<char>(text.size() >> (8 * i) & 0xff);
    return out + text;
}

}  // namespace tilewise::cli
