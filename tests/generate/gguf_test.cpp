// The GGUF reader: what right files give, and that each kind of wrong file is refused by a message that names the culprit.
#include <gtest/gtest.h>

#include "config.hpp"
#include "mapped_file.hpp"
#include "synthetic_gguf.hpp"
#include "weights.hpp"

namespace tilewise::generate {
namespace {

// The message with which `action` throws; empty if it does not.
template <typename Action> std::string message_of(Action&& action) {
    try {
        action();
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return {};
}

void expect_refused(const Bytes& file, const std::string& beginning) {
    const std::string message = message_of([&] { Gguf{file}; });
    EXPECT_EQ(message.substr(0, beginning.size()), beginning) << message;
}

void expect_config_refused(const GgufWriter& writer, const std::string& beginning) {
    const Bytes file = writer.file();
    const Gguf gguf(file);
    const std::string message = message_of([&] { read_config(gguf); });
    EXPECT_EQ(message.substr(0, beginning.size()), beginning) << message;
}

TEST(Gguf, ReadsValuesOfEveryKind) {
    const Bytes file = GgufWriter()
                           .string("name", "small")
                           .u32("count", 7)
                           .i64("offset", -3)
                           .f32("base", 0.5f)
                           .boolean("flag", true)
                           .strings("words", {"a", "", "bcd"})
                           .i32s("numbers", {1, -2, 3})
                           .file();
    const Gguf gguf(file);
    EXPECT_EQ(gguf.string("name"), "small");
    EXPECT_EQ(gguf.integer("count"), 7);
    EXPECT_EQ(gguf.integer("offset"), -3);
    EXPECT_EQ(gguf.number("base"), 0.5);
    EXPECT_TRUE(gguf.boolean("flag"));
    EXPECT_EQ(gguf.strings("words"), (std::vector<std::string_view>{"a", "", "bcd"}));
    EXPECT_EQ(gguf.integers("numbers"), (std::vector<std::int64_t>{1, -2, 3}));
    EXPECT_EQ(gguf.integer_or("absent", 5), 5);
    EXPECT_FALSE(gguf.boolean_or("absent", false));
}

TEST(Gguf, ReadsTensorsInPlace) {
    const Bytes data(2 * 34, std::byte{9});
    const Bytes file = GgufWriter().tensor("a", {3}, 0).tensor("b", {32, 2}, 8, data).file(2);
    const Gguf gguf(file);
    const Tensor& tensor = gguf.tensor("b");
    EXPECT_EQ(tensor.type, TensorType::kQ80);
    EXPECT_EQ(tensor.dims, (std::vector<std::int64_t>{32, 2}));
    EXPECT_TRUE(std::equal(tensor.bytes.begin(), tensor.bytes.end(), data.begin(), data.end()));
    EXPECT_EQ(gguf.find_tensor("c"), nullptr);
    EXPECT_NE(message_of([&] { gguf.tensor("c"); }).find("c: is missing"), std::string::npos);
}

TEST(Gguf, NamesMissingAndMistypedKeys) {
    const Bytes file = GgufWriter().u32("count", 7).string("name", "small").file();
    const Gguf gguf(file);
    EXPECT_EQ(message_of([&] { gguf.integer("depth"); }), "depth: is missing from the file's metadata");
    EXPECT_EQ(message_of([&] { gguf.string("count"); }), "count: holds a value of type 4; a string is needed");
    EXPECT_EQ(message_of([&] { gguf.integer("name"); }),
              "name: holds a value of type 8; an integer below 2^63 is needed");
    EXPECT_EQ(message_of([&] { gguf.strings("name"); }),
              "name: holds a value of type 8; an array of strings is needed");
    EXPECT_EQ(message_of([&] { gguf.number("count"); }),
              "count: holds a value of type 4; a floating-point number is needed");
}

TEST(Gguf, RefusesWrongFiles) {
    expect_refused({}, "magic: needs 4 bytes at offset 0");
    expect_refused(Bytes(64), "magic: the file starts with 0x00000000");
    expect_refused(GgufWriter().file(1), "version: 1;");
    expect_refused(GgufWriter().file(0x03000000), "version: 50331648;");
    expect_refused(GgufWriter().u32("k", 1).u32("k", 2).file(), "k: stands in the file twice");
    expect_refused(GgufWriter().tensor("t", {1}, 0).tensor("t", {1}, 0).file(), "t: stands in the file twice");
    expect_refused(GgufWriter().raw_value("k", 13, {}).file(), "k: a value of type 13;");
    expect_refused(GgufWriter().u32("general.alignment", 48).file(), "general.alignment: 48;");
    expect_refused(GgufWriter().u32("general.alignment", 0).file(), "general.alignment: 0;");
}

TEST(Gguf, RefusesArraysThatCannotBe) {
    Bytes huge;
    append(huge, std::uint32_t{5});
    append(huge, std::uint64_t{1} << 62);
    expect_refused(GgufWriter().raw_value("k", 9, huge).file(), "k: 4611686018427387904 elements of 4 bytes");
    Bytes many;
    append(many, std::uint32_t{8});
    append(many, std::uint64_t{1} << 60);
    expect_refused(GgufWriter().raw_value("k", 9, many).file(), "k: needs ");
    Bytes nested;
    append(nested, std::uint32_t{9});
    append(nested, std::uint64_t{1});
    expect_refused(GgufWriter().raw_value("k", 9, nested).file(), "k: an array of elements of type 9;");
}

TEST(Gguf, RefusesTensorsThatCannotBe) {
    expect_refused(GgufWriter().tensor("t", {31}, 3, {}).file(), "t: rows of 31 elements of type Q4_1;");
    expect_refused(GgufWriter().tensor("t", {32}, 14, {}).file(), "t: tensor type 14;");
    expect_refused(GgufWriter().tensor("t", {}, 0, {}).file(), "t: has 0 dimensions;");
    expect_refused(GgufWriter().tensor("t", {1, 1, 1, 1, 1}, 0, {}).file(), "t: has 5 dimensions;");
    expect_refused(GgufWriter().tensor("t", {4, 0}, 0, {}).file(), "t: dimension 1 is 0;");
    expect_refused(GgufWriter().tensor("t", {~std::uint64_t{0}}, 0, {}).file(), "t: dimension 0 is 1844");
    const std::uint64_t half = std::uint64_t{1} << 32;
    expect_refused(GgufWriter().tensor("t", {half, half, half}, 0, {}).file(), "t: dimension 1 is 4294967296");
    expect_refused(GgufWriter().tensor("t", {std::uint64_t{1} << 62}, 0, {}).file(), "t: dimension 0 is 46116");
    expect_refused(GgufWriter().tensor("t", {9}, 0, {}).file(), "t: 36 bytes at offset 0, but the file holds 0");
}

TEST(Gguf, ShowsStrangeNamesEscapedAndCut) {
    EXPECT_EQ(printable("a\x1b[2J\xff"), "a\\x1b[2J\\xff");
    EXPECT_EQ(printable(std::string(100, 'x')), std::string(64, 'x') + "...");
}

TEST(Gguf, NamesFilesThatCannotBeMapped) {
    EXPECT_EQ(message_of([] { MappedFile("no/such/file.gguf"); }),
              "no/such/file.gguf: cannot open the file: No such file or directory");
    EXPECT_EQ(message_of([] { MappedFile("/"); }), "/: is no regular file");
}

TEST(Config, ReadsAModel) {
    const Bytes file = small_model().file();
    const Gguf gguf(file);
    const ModelConfig config = read_config(gguf);
    EXPECT_EQ(config.num_layers, 1);
    EXPECT_EQ(config.heads.num_heads_q, 2);
    EXPECT_EQ(config.heads.num_heads_kv, 1);
    EXPECT_EQ(config.heads.head_dim, 16);
    EXPECT_EQ(config.heads.rotary_dim, 16);
    EXPECT_EQ(config.heads.rotary_base, 10000.0);
    const Weights weights = read_weights(gguf, config, 262);
    EXPECT_EQ(weights.layers.size(), 1u);
    EXPECT_EQ(weights.output.row(1), weights.embedding.row(1)) << "tied embeddings";
}

TEST(Config, RefusesOtherModels) {
    expect_config_refused(GgufWriter().string("general.architecture", "gemma2"), "general.architecture: \"gemma2\"");
    expect_config_refused(small_model().u32("llama.expert_count", 8), "llama.expert_count: 8;");
    expect_config_refused(small_model().string("llama.rope.scaling.type", "yarn"), "llama.rope.scaling.type: \"yarn\"");
    expect_config_refused(small_model().u32("llama.rope.dimension_count", 15), "llama.rope.dimension_count: 15;");
    expect_config_refused(small_model().u32("llama.attention.value_length", 8), "llama.attention.value_length: 8;");
    expect_config_refused(GgufWriter().string("general.architecture", "llama"), "llama.block_count: is missing");
}

TEST(Weights, RefusesShapesAndTensorsThatDoNotFit) {
    const auto refusal = [](GgufWriter writer, std::int64_t vocabulary) {
        const Bytes file = writer.file();
        const Gguf gguf(file);
        return message_of([&] { read_weights(gguf, read_config(gguf), vocabulary); });
    };
    EXPECT_EQ(refusal(small_model(), 300),
              "token_embd.weight: has shape (32, 262); the hyperparameters need (32, 300)");
    EXPECT_EQ(refusal(small_model().tensor("blk.0.attn_q.bias", {32}, 0), 262).substr(0, 27),
              "blk.0.attn_q.bias: a tensor");
    EXPECT_EQ(refusal(small_model().tensor("output.weight", {32, 262}, 1), 262), "");
}

}  // namespace
}  // namespace tilewise::generate
