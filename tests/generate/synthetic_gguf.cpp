// The writer, and the small model of the tests.
#include "synthetic_gguf.hpp"

#include "unicode.hpp"

namespace tilewise::generate {

namespace {

constexpr std::size_t kAlignment = 32;

void append_string(Bytes& out, const std::string& text) {
    append(out, static_cast<std::uint64_t>(text.size()));
    for (const char c : text) {
        out.push_back(static_cast<std::byte>(c));
    }
}

void pad(Bytes& out) { out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment); }

// How the vocabulary writes a byte, worked out independently of the tokenizer: visible Latin-1 as itself, the rest from
// U+0100 on.
std::vector<std::string> byte_names() {
    std::vector<std::string> names;
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
        const bool hidden = byte <= 0x20 || (byte >= 0x7f && byte <= 0xa0) || byte == 0xad;
        names.emplace_back();
        append_utf8(names.back(), hidden ? next++ : byte);
    }
    return names;
}

}  // namespace

GgufWriter& GgufWriter::raw_value(const std::string& key, std::uint32_t type, const Bytes& payload) {
    Bytes value;
    append(value, type);
    value.insert(value.end(), payload.begin(), payload.end());
    values_.emplace_back(key, value);
    return *this;
}

GgufWriter& GgufWriter::string(const std::string& key, const std::string& value) {
    Bytes payload;
    append_string(payload, value);
    return raw_value(key, 8, payload);
}

GgufWriter& GgufWriter::u32(const std::string& key, std::uint32_t value) {
    Bytes payload;
    append(payload, value);
    return raw_value(key, 4, payload);
}

GgufWriter& GgufWriter::i64(const std::string& key, std::int64_t value) {
    Bytes payload;
    append(payload, value);
    return raw_value(key, 11, payload);
}

GgufWriter& GgufWriter::f32(const std::string& key, float value) {
    Bytes payload;
    append(payload, value);
    return raw_value(key, 6, payload);
}

GgufWriter& GgufWriter::boolean(const std::string& key, bool value) {
    return raw_value(key, 7, {static_cast<std::byte>(value ? 1 : 0)});
}

GgufWriter& GgufWriter::strings(const std::string& key, const std::vector<std::string>& values) {
    Bytes payload;
    append(payload, std::uint32_t{8});
    append(payload, static_cast<std::uint64_t>(values.size()));
    for (const std::string& value : values) {
        append_string(payload, value);
    }
    return raw_value(key, 9, payload);
}

GgufWriter& GgufWriter::i32s(const std::string& key, const std::vector<std::int32_t>& values) {
    Bytes payload;
    append(payload, std::uint32_t{5});
    append(payload, static_cast<std::uint64_t>(values.size()));
    for (const std::int32_t value : values) {
        append(payload, value);
    }
    return raw_value(key, 9, payload);
}

GgufWriter& GgufWriter::tensor(const std::string& name, const std::vector<std::uint64_t>& dims, std::uint32_t type) {
    const TensorTypeInfo& info = *find_tensor_type(type);
    std::uint64_t elements = 1;
    for (const std::uint64_t dim : dims) {
        elements *= dim;
    }
    Bytes bytes(elements / static_cast<std::uint64_t>(info.block_elements) *
                static_cast<std::uint64_t>(info.block_bytes));
    std::uint32_t state = 1;
    for (std::byte& byte : bytes) {
        state = state * 1664525u + 1013904223u;
        byte = static_cast<std::byte>(state >> 24);
    }
    return tensor(name, dims, type, bytes);
}

GgufWriter& GgufWriter::tensor(const std::string& name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                               Bytes bytes) {
    tensors_.push_back({name, dims, type, std::move(bytes)});
    return *this;
}

Bytes GgufWriter::file(std::uint32_t version) const {
    Bytes out;
    append(out, std::uint32_t{0x46554747});
    append(out, version);
    append(out, static_cast<std::uint64_t>(tensors_.size()));
    append(out, static_cast<std::uint64_t>(values_.size()));
    for (const auto& [key, value] : values_) {
        append_string(out, key);
        out.insert(out.end(), value.begin(), value.end());
    }
    Bytes data;
    for (const Entry& entry : tensors_) {
        append_string(out, entry.name);
        append(out, static_cast<std::uint32_t>(entry.dims.size()));
        for (const std::uint64_t dim : entry.dims) {
            append(out, dim);
        }
        append(out, entry.type);
        append(out, static_cast<std::uint64_t>(data.size()));
        data.insert(data.end(), entry.bytes.begin(), entry.bytes.end());
        pad(data);
    }
    pad(out);
    out.insert(out.end(), data.begin(), data.end());
    return out;
}

void add_vocabulary(GgufWriter& writer) {
    std::vector<std::string> tokens = byte_names();
    const std::string space = tokens[' '];
    for (const std::string& word : {space + "t", std::string("he"), space + "the", std::string("in")}) {
        tokens.push_back(word);
    }
    std::vector<std::int32_t> types(tokens.size(), 1);
    for (const char* control : {"<|im_start|>", "<|im_end|>"}) {
        tokens.emplace_back(control);
        types.push_back(3);
    }
    writer.string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", "smollm")
        .strings("tokenizer.ggml.tokens", tokens)
        .i32s("tokenizer.ggml.token_type", types)
        .strings("tokenizer.ggml.merges", {space + " t", "h e", space + "t he", "i n"})
        .u32("tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(tokens.size() - 1))
        .string("tokenizer.chat_template", "<|im_start|>system\nBe kind.<|im_end|>\n");
}

GgufWriter small_model() {
    constexpr std::uint32_t kF32 = 0, kF16 = 1, kQ4 = 3, kQ8 = 8;
    GgufWriter writer;
    writer.string("general.architecture", "llama")
        .u32("llama.block_count", 1)
        .u32("llama.context_length", 64)
        .u32("llama.embedding_length", 32)
        .u32("llama.feed_forward_length", 64)
        .u32("llama.attention.head_count", 2)
        .u32("llama.attention.head_count_kv", 1)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
        .f32("llama.rope.freq_base", 10000.0f);
    add_vocabulary(writer);
    writer.tensor("token_embd.weight", {32, 262}, kQ8)
        .tensor("blk.0.attn_norm.weight", {32}, kF32)
        .tensor("blk.0.attn_q.weight", {32, 32}, kQ4)
        .tensor("blk.0.attn_k.weight", {32, 16}, kQ8)
        .tensor("blk.0.attn_v.weight", {32, 16}, kF16)
        .tensor("blk.0.attn_output.weight", {32, 32}, kF32)
        .tensor("blk.0.ffn_norm.weight", {32}, kF32)
        .tensor("blk.0.ffn_gate.weight", {32, 64}, kQ4)
        .tensor("blk.0.ffn_up.weight", {32, 64}, kQ4)
        .tensor("blk.0.ffn_down.weight", {64, 32}, kQ4)
        .tensor("output_norm.weight", {32}, kF32);
    return writer;
}

}  // namespace tilewise::generate
