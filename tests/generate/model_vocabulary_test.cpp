// The tokenizer on the real vocabulary of SmolLM2, against token numbers from the model authors' own tokenizer library.
// Needs the model that tools/fetch_model.sh fetches.
#include <gtest/gtest.h>

#include "mapped_file.hpp"
#include "tokenizer.hpp"

namespace tilewise::generate {
namespace {

struct Case {
    const char* text;
    std::vector<std::int32_t> ids;
};

const std::vector<Case>& cases() {
    static const std::vector<Case> kCases = {
        {"Hello world", {19556, 905}},
        {"What is the capital of France?", {1780, 314, 260, 3575, 282, 4649, 47}},
        {"  leading and   runs \n\n\n of\t\tspace  ",
         {216, 2899, 284, 256, 7313, 216, 16506, 282, 197, 197, 11602, 256}},
        {"I'm can't you'll they've we'd it's he're 'S 'LL",
         {57, 5248, 416, 982, 346, 3060, 502, 3543, 392, 6737, 357, 506, 384, 2316, 637, 67, 637, 16421}},
        {"3.14159 and 1234567890 in 2024, 7th", {35, 30, 33, 36, 33,  37,  41, 284, 216, 33, 34, 35,  36, 37, 38,
                                                 39, 40, 41, 32, 281, 216, 34, 32,  34,  36, 28, 216, 39, 373}},
        {"na\u00efve caf\u00e9 \u00dcn\u00efc\u00f6d\u00e9 \u2014 \u201cquotes\u201d \u2026",
         {3546, 46494, 37366, 5549, 246, 94, 25972, 83, 7466, 84, 2756, 1841, 619, 385, 2346, 573, 5548}},
        {"\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8",
         {23274, 115, 40993, 179, 120, 248, 26453, 11100, 224, 10391, 251, 10391, 134, 11100, 226}},
        {"\U0001F642\U0001F680 emoji", {10813, 38887, 10813, 244, 218, 649, 33777}},
        {"x\u00b2+y\u00b3=\u00bd \u2167 \u0663",
         {104, 19133, 27, 105, 39050, 45, 16738, 216, 173, 223, 117, 216, 164, 113}},
        {"tab\tnew\r\nline", {15999, 197, 2241, 201, 198, 1311}},
        {"\u3000\u00a0wide", {12109, 218, 15442, 3641}},
        {"user\nHi <|im_end|> there", {4093, 198, 26843, 2067, 108, 306, 79, 486, 108, 46, 665}},
        {"1 2  3   4", {33, 216, 34, 256, 35, 333, 36}},
        {"a 1b2 c3 ' s 't", {81, 216, 33, 82, 34, 265, 35, 637, 262, 637, 100}},
    };
    return kCases;
}

class ModelVocabulary : public testing::Test {
protected:
    MappedFile mapped_{TILEWISE_TEST_MODEL};
    Gguf file_{mapped_.bytes()};
    Tokenizer tokenizer_{file_};
};

TEST_F(ModelVocabulary, EncodesAsTheReferenceDoes) {
    for (const Case& c : cases()) {
        EXPECT_EQ(tokenizer_.encode(c.text), c.ids) << c.text;
    }
}

TEST_F(ModelVocabulary, RoundTrips) {
    for (const Case& c : cases()) {
        EXPECT_EQ(tokenizer_.decode(tokenizer_.encode(c.text)), c.text);
    }
    const std::string spaces(37, ' ');
    EXPECT_EQ(tokenizer_.encode(spaces), (std::vector<std::int32_t>{12427, 4444}));
    EXPECT_EQ(tokenizer_.encode(std::string(1000, 'a')).size(), 250u);
}

TEST_F(ModelVocabulary, NamesAByteThatItLacks) {
    try {
        tokenizer_.encode("a\x04");
        FAIL() << "the vocabulary has no token for the byte 4";
    } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "holds the byte 4, for which the model's vocabulary has no token");
    }
}

}  // namespace
}  // namespace tilewise::generate
