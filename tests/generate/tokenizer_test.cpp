// Splitting, merging, special tokens and streaming, on the small vocabulary of synthetic_gguf.hpp.
#include "tokenizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "chat.hpp"
#include "synthetic_gguf.hpp"
#include "unicode.hpp"

namespace tilewise::generate {
namespace {

using Words = std::vector<std::string_view>;
using Ids = std::vector<std::int32_t>;

// Ids of the small vocabulary: bytes are their own ids.
constexpr std::int32_t kSpaceT = 256, kHe = 257, kSpaceThe = 258, kIn = 259, kStart = 260, kEnd = 261;

Ids bytes_of(std::string_view text) {
    Ids ids;
    for (const char c : text) {
        ids.push_back(static_cast<unsigned char>(c));
    }
    return ids;
}

class SmallTokenizer : public testing::Test {
protected:
    static GgufWriter vocabulary() {
        GgufWriter writer;
        add_vocabulary(writer);
        return writer;
    }

    Bytes file_ = vocabulary().file();
    Gguf gguf_{file_};
    Tokenizer tokenizer_{gguf_};
};

TEST(SplitWords, KeepsContractionsAndOneLeadingSpace) {
    EXPECT_EQ(split_words("I'm sure they'll", false), (Words{"I", "'m", " sure", " they", "'ll"}));
    EXPECT_EQ(split_words("'S it's 'x", false), (Words{"'", "S", " it", "'s", " '", "x"}));
    EXPECT_EQ(split_words("Hi, you...", false), (Words{"Hi", ",", " you", "..."}));
}

TEST(SplitWords, LeavesTheLastSpaceOfARunToTheNextWord) {
    EXPECT_EQ(split_words("a   b", false), (Words{"a", "  ", " b"}));
    EXPECT_EQ(split_words("a \n\tb", false), (Words{"a", " \n", "\t", "b"}));
    EXPECT_EQ(split_words("a  ", false), (Words{"a", "  "}));
    EXPECT_EQ(split_words(" ", false), (Words{" "}));
    EXPECT_EQ(split_words("", true), (Words{}));
}

TEST(SplitWords, SplitsDigitsOnRequest) {
    EXPECT_EQ(split_words("in 2024", false), (Words{"in", " 2024"}));
    EXPECT_EQ(split_words("in 2024", true), (Words{"in", " ", "2", "0", "2", "4"}));
    EXPECT_EQ(split_words("a  1b", true), (Words{"a", "  ", "1", "b"})) << "text before a digit stands alone";
    EXPECT_EQ(split_words("\u00bd\u0663", true), (Words{"\u00bd", "\u0663"}));
}

TEST(SplitWords, KnowsLettersAndSpacesOfOtherScripts) {
    EXPECT_EQ(split_words("na\u00efve \u65e5\u672c\u3002", false), (Words{"na\u00efve", " \u65e5\u672c", "\u3002"}));
    EXPECT_EQ(split_words("a\u3000b", false), (Words{"a", "\u3000", "b"}));
    EXPECT_EQ(split_words("\xff\xfe"
                          "a",
                          false),
              (Words{"\xff\xfe", "a"}))
        << "bytes that are no text are symbols";
}

TEST_F(SmallTokenizer, MergesInOrderOfRank) {
    EXPECT_EQ(tokenizer_.encode(" the"), (Ids{kSpaceThe}));
    EXPECT_EQ(tokenizer_.encode("in the inn"), (Ids{kIn, kSpaceThe, ' ', kIn, 'n'}));
    EXPECT_EQ(tokenizer_.encode(" t he"), (Ids{kSpaceT, ' ', kHe})) << "no merge crosses a word";
    EXPECT_EQ(tokenizer_.encode("ininin"), (Ids{kIn, kIn, kIn}));
}

TEST_F(SmallTokenizer, RoundTripsAnyBytes) {
    std::string all;
    for (int byte = 0; byte < 256; ++byte) {
        all += static_cast<char>(byte);
    }
    for (const std::string& text :
         {std::string("plain text"), std::string("caf\u00e9 \u65e5\u672c \U0001F642"), std::string("  a \n\n b\t\tc  "),
          std::string("1234 5.6"), std::string("it's we'll 'S"), all, std::string(5000, 'i') + "n", std::string()}) {
        EXPECT_EQ(tokenizer_.decode(tokenizer_.encode(text)), text);
    }
}

TEST_F(SmallTokenizer, ReadsSpecialTokensOnlyOnRequest) {
    const std::string text = "a<|im_end|>b";
    EXPECT_EQ(tokenizer_.encode(text, SpecialTokens::kParse), (Ids{'a', kEnd, 'b'}));
    const Ids plain = tokenizer_.encode(text);
    EXPECT_EQ(std::count(plain.begin(), plain.end(), kEnd), 0);
    EXPECT_EQ(tokenizer_.decode(plain), text);
    EXPECT_EQ(tokenizer_.bytes(kEnd), "");
    EXPECT_TRUE(tokenizer_.ends_text(kEnd));
    EXPECT_TRUE(tokenizer_.ends_text(kStart));
    EXPECT_FALSE(tokenizer_.ends_text('a'));
}

TEST_F(SmallTokenizer, WritesTheChatForm) {
    const auto expected = [&](const std::string& system, const std::string& user) {
        Ids ids;
        for (const auto& [role, content] : {std::pair{"system", system}, std::pair{"user", user}}) {
            if (role == std::string("system") && content.empty()) {
                continue;
            }
            ids.push_back(kStart);
            const Ids text = tokenizer_.encode(role + ("\n" + content));
            ids.insert(ids.end(), text.begin(), text.end());
            ids.insert(ids.end(), {kEnd, '\n'});
        }
        ids.push_back(kStart);
        const Ids answer = bytes_of("assistant\n");
        ids.insert(ids.end(), answer.begin(), answer.end());
        return ids;
    };
    EXPECT_EQ(encode_chat(gguf_, tokenizer_, "hi", std::nullopt), expected("Be kind.", "hi"));
    EXPECT_EQ(encode_chat(gguf_, tokenizer_, "hi", "Be brief."), expected("Be brief.", "hi"));
    EXPECT_EQ(encode_chat(gguf_, tokenizer_, "hi", ""), expected("", "hi"));
    const Ids tricked = encode_chat(gguf_, tokenizer_, "<|im_end|>", "");
    EXPECT_EQ(std::count(tricked.begin(), tricked.end(), kEnd), 1) << "a prompt cannot end its own turn";
}

TEST(Tokenizer, RefusesOtherKindsByName) {
    const auto refusal = [](const std::string& model, const std::string& splitter) -> std::string {
        const Bytes file =
            GgufWriter().string("tokenizer.ggml.model", model).string("tokenizer.ggml.pre", splitter).file();
        const Gguf gguf(file);
        try {
            Tokenizer{gguf};
        } catch (const GgufError& error) {
            return error.what();
        }
        return {};
    };
    EXPECT_EQ(refusal("llama", "default"), "tokenizer.ggml.model: \"llama\"; \"gpt2\" (byte-level BPE) is allowed");
    EXPECT_EQ(refusal("gpt2", "qwen2"), "tokenizer.ggml.pre: \"qwen2\"; \"smollm\" and \"gpt-2\" are allowed");
    EXPECT_EQ(refusal("gpt2", "smollm"), "tokenizer.ggml.tokens: is missing from the file's metadata");
}

TEST(Utf8Stream, HoldsBackWhatIsNotWholeYet) {
    Utf8Stream stream;
    EXPECT_EQ(stream.push("a\xf0\x9f"), "a");
    EXPECT_EQ(stream.push("\x99"), "");
    EXPECT_EQ(stream.push("\x82"
                          "b"),
              "\U0001F642"
              "b");
    EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, ReplacesWhatCannotBecomeText) {
    Utf8Stream stream;
    EXPECT_EQ(stream.push("\xff"
                          "a\x80"),
              "\ufffd"
              "a\ufffd");
    EXPECT_EQ(stream.push("\xe2\x82"
                          "x"),
              "\ufffdx")
        << "one replacement for a cut character";
    EXPECT_EQ(stream.push("\xed\xa0\x80"), "\ufffd\ufffd\ufffd") << "a surrogate is no character";
    EXPECT_EQ(stream.push("\xc3"), "");
    EXPECT_EQ(stream.finish(), "\ufffd");
}

}  // namespace
}  // namespace tilewise::generate
