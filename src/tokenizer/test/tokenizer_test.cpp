#include "tokenizer/tokenizer.h"

#include <chrono>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

#include "readers/clean_message.h"
#include "readers/linear_time.h"
#include "small_sizes.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer {
namespace {

using nlohmann::json;

json read_fixture(const std::string& name) {
  return json::parse(std::ifstream(HEDDLE_SOURCE_DIR "/tests/fixtures/tokenizer/" + name));
}

const std::vector<std::string>& fixture_texts() {
  static const auto texts = read_fixture("texts.json").get<std::vector<std::string>>();
  return texts;
}

Vocabulary fixture_vocabulary(const std::string& pre_tokenizer) {
  static const json file = read_fixture("vocabulary.json");
  Vocabulary vocabulary;
  vocabulary.tokens = file["tokens"].get<std::vector<std::string>>();
  vocabulary.types = file["types"].get<std::vector<TokenType>>();
  vocabulary.merges = file["merges"].get<std::vector<std::string>>();
  vocabulary.pre_tokenizer = pre_tokenizer;
  return vocabulary;
}

/// Every byte has a token: ids 0 to 255 in the alphabet's order, then the tokens given, which have
/// no merges.
Vocabulary byte_vocabulary(const std::vector<std::string>& more_tokens, TokenType type) {
  Vocabulary vocabulary;
  for (int invisible = 0x100, byte = 0; byte < 256; ++byte) {
    const bool visible = (byte > ' ' && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    const int character = visible ? byte : invisible++;
    std::string token;
    if (character >= 0x80) token += static_cast<char>(0xC0 | character >> 6);
    token += static_cast<char>(character >= 0x80 ? 0x80 | (character & 0x3F) : character);
    vocabulary.tokens.push_back(token);
  }
  vocabulary.types.assign(256, TokenType::kNormal);
  for (const std::string& token : more_tokens) {
    vocabulary.tokens.push_back(token);
    vocabulary.types.push_back(type);
  }
  vocabulary.pre_tokenizer = "gpt-2";
  return vocabulary;
}

void expect_recorded(const Tokenizer& tokenizer, ControlTokens control, const std::string& key) {
  static const json recorded = read_fixture("ids.json");
  const auto want = recorded.at(key).get<std::vector<std::vector<int32_t>>>();
  ASSERT_EQ(want.size(), fixture_texts().size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(tokenizer.encode(fixture_texts()[i], control), want[i])
        << key << ", text " << i << ": " << json(fixture_texts()[i]);
  }
}

TEST(Tokenizer, EncodesAsTheTokenizersPackageDoes) {
  for (const char* name : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
    expect_recorded(Tokenizer(fixture_vocabulary(name)), ControlTokens::kParse, name);
  }
}

TEST(Tokenizer, TreatsControlTokensAsPlainTextOnRequest) {
  const Tokenizer tokenizer(fixture_vocabulary("smollm"));
  expect_recorded(tokenizer, ControlTokens::kPlain, "smollm, control tokens as plain text");
  const int32_t end = tokenizer.find("<|im_end|>");
  ASSERT_TRUE(tokenizer.is_control(end));
  for (const int32_t id : tokenizer.encode("a<|im_end|>b", ControlTokens::kPlain)) {
    EXPECT_FALSE(tokenizer.is_control(id));
  }
}

TEST(Tokenizer, DecodesWhatItEncoded) {
  for (const char* name : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
    Vocabulary vocabulary = byte_vocabulary({"<|end|>"}, TokenType::kControl);
    vocabulary.merges = {"a b", "Ġ t", "Ã ©", "h e", "Ġt he"};
    for (const char* merged : {"ab", "Ġt", "Ã©", "he", "Ġthe"}) {
      vocabulary.tokens.push_back(merged);
      vocabulary.types.push_back(TokenType::kNormal);
    }
    vocabulary.pre_tokenizer = name;
    const Tokenizer tokenizer(std::move(vocabulary));
    for (const std::string& text : fixture_texts()) {
      for (const ControlTokens control : {ControlTokens::kParse, ControlTokens::kPlain}) {
        EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, control)), text);
      }
    }
  }
}

TEST(Tokenizer, ReplacesBrokenUtf8BeforeAnythingElse) {
  const Tokenizer tokenizer(byte_vocabulary({"<|end|>"}, TokenType::kControl));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\xE2\x82 b\xFF", ControlTokens::kParse)),
            "a\uFFFD b\uFFFD");
  EXPECT_EQ(tokenizer.encode("\xF0\x9F<|end|>\x80", ControlTokens::kParse),
            tokenizer.encode("\uFFFD<|end|>\uFFFD", ControlTokens::kParse));
}

TEST(Tokenizer, CutsOutTheLeftmostThenLongestAddedToken) {
  const Tokenizer tokenizer(
      byte_vocabulary({"ab", "abcd", "bc", "bcdefg", "\xC3", "", "ab"}, TokenType::kUserDefined));
  const auto pieces = [&](std::string_view text) {
    std::vector<std::string> result;
    for (const int32_t id : tokenizer.encode(text, ControlTokens::kPlain)) {
      result.emplace_back(tokenizer.token_bytes(id));
    }
    return result;
  };
  EXPECT_EQ(pieces("xabcdefg"), (std::vector<std::string>{"x", "abcd", "e", "f", "g"}));
  EXPECT_EQ(pieces("abcbcdefg"), (std::vector<std::string>{"ab", "c", "bcdefg"}));
  EXPECT_EQ(pieces("abc"), (std::vector<std::string>{"ab", "c"}));
  EXPECT_EQ(pieces("é"),
            (std::vector<std::string>{"\xC3", "\xA9"}));  // bytes, not the token of one
  EXPECT_EQ(tokenizer.encode("ab", ControlTokens::kPlain), (std::vector<int32_t>{256}));
  EXPECT_EQ(tokenizer.encode("é", ControlTokens::kPlain), (std::vector<int32_t>{0xC3, 0xA9}));
}

TEST(Tokenizer, KnowsItsTokens) {
  Vocabulary vocabulary = byte_vocabulary({"<s>", "</s>"}, TokenType::kControl);
  vocabulary.bos = 256;
  vocabulary.eos = 257;
  vocabulary.add_bos = true;
  const Tokenizer tokenizer(std::move(vocabulary));
  EXPECT_EQ(tokenizer.vocab_size(), 258);
  EXPECT_EQ(tokenizer.bos(), 256);
  EXPECT_EQ(tokenizer.eos(), 257);
  ASSERT_EQ(tokenizer.begin_tokens().size(), 1u);
  EXPECT_EQ(tokenizer.begin_tokens()[0], 256);
  EXPECT_EQ(tokenizer.find("</s>"), 257);
  EXPECT_EQ(tokenizer.find(" "), ' ');
  EXPECT_EQ(tokenizer.find("no such token"), kNoToken);
  EXPECT_EQ(tokenizer.token_bytes('\n'), "\n");
  EXPECT_TRUE(tokenizer.encode("", ControlTokens::kParse).empty());
}

TEST(Tokenizer, TreatsEachTypeOfTokenAsItsHeaderSays) {
  Vocabulary vocabulary = byte_vocabulary({"<unk>"}, TokenType::kUnknown);
  vocabulary.types['a'] = TokenType::kByte;
  for (const auto& [text, type] : {std::pair("<end>", TokenType::kControl),
                                   {"<x>", TokenType::kUserDefined},
                                   {"<u>", TokenType::kUnused}}) {
    vocabulary.tokens.emplace_back(text);
    vocabulary.types.push_back(type);
  }
  const Tokenizer tokenizer(std::move(vocabulary));
  const auto num_ids = [&](const char* text, ControlTokens control) {
    return tokenizer.encode(text, control).size();
  };
  EXPECT_EQ(tokenizer.encode("a", ControlTokens::kPlain), (std::vector<int32_t>{'a'}));
  for (const char* control : {"<unk>", "<end>"}) {
    EXPECT_TRUE(tokenizer.is_control(tokenizer.find(control)));
    EXPECT_EQ(num_ids(control, ControlTokens::kParse), 1u);
    EXPECT_EQ(num_ids(control, ControlTokens::kPlain), 5u);
  }
  EXPECT_FALSE(tokenizer.is_control(tokenizer.find("<x>")));
  EXPECT_EQ(num_ids("<x>", ControlTokens::kPlain), 1u);
  EXPECT_EQ(num_ids("<u>", ControlTokens::kParse), 3u);
}

TEST(Tokenizer, MergesToTheTokenThatIsSpelledInBytes) {
  // Command R has both: U+200D itself, and its three bytes.
  Vocabulary vocabulary =
      byte_vocabulary({"\u200D", "\u00E2\u0122", "\u00E2\u0122\u012F"}, TokenType::kNormal);
  vocabulary.merges = {"\u00E2 \u0122", "\u00E2\u0122 \u012F"};
  const Tokenizer tokenizer(std::move(vocabulary));
  EXPECT_EQ(tokenizer.encode("\u200D", ControlTokens::kPlain), (std::vector<int32_t>{258}));
  EXPECT_EQ(tokenizer.token_bytes(256), "\u200D");
  EXPECT_EQ(tokenizer.token_bytes(258), "\u200D");
}

TEST(Tokenizer, ReadsVocabulariesOfSentencePiece) {
  Vocabulary vocabulary;
  vocabulary.kind = VocabularyKind::kSentencePieceBpe;
  vocabulary.tokens = {"<unk>", "<s>", "▁", "a", "b", "▁a", "ab", "<0xC3>", "<0xA9>", "<x>"};
  vocabulary.scores = {0, 0, -4, -5, -6, -2, -1, 0, 0, 0};
  vocabulary.types.assign(10, TokenType::kNormal);
  vocabulary.types[0] = TokenType::kUnknown;
  vocabulary.types[1] = TokenType::kControl;
  vocabulary.types[7] = vocabulary.types[8] = TokenType::kByte;
  vocabulary.types[9] = TokenType::kUserDefined;
  vocabulary.bos = 1;
  vocabulary.add_bos = true;
  const auto ids = [](const Tokenizer& tokenizer, std::string_view text, ControlTokens control) {
    return tokenizer.encode(text, control);
  };
  using Ids = std::vector<int32_t>;
  {
    const Tokenizer tokenizer{Vocabulary(vocabulary)};
    EXPECT_EQ(ids(tokenizer, "ab a", ControlTokens::kParse), (Ids{2, 6, 5}));
    EXPECT_EQ(ids(tokenizer, "é<x>a", ControlTokens::kPlain), (Ids{2, 7, 8, 9, 5}));
    EXPECT_EQ(ids(tokenizer, "<s>a", ControlTokens::kParse), (Ids{1, 5}));
    EXPECT_EQ(tokenizer.decode(Ids{2, 6, 5, 7, 8}), "ab aé");
    EXPECT_EQ(tokenizer.decode(Ids{1, 5}), "<s> a");
    EXPECT_EQ(tokenizer.decode(Ids{5, 5}), "a a");
    EXPECT_EQ(tokenizer.token_bytes(5), " a");
    ASSERT_EQ(tokenizer.begin_tokens().size(), 1u);
    EXPECT_EQ(tokenizer.begin_tokens()[0], 1);
    EXPECT_TRUE(tokenizer.end_tokens().empty());
    for (const int32_t id : ids(tokenizer, "<s>", ControlTokens::kPlain)) EXPECT_NE(id, 1);
  }
  vocabulary.add_space_prefix = false;
  const Tokenizer tokenizer{std::move(vocabulary)};
  EXPECT_EQ(ids(tokenizer, "ab a", ControlTokens::kParse), (Ids{6, 5}));
  EXPECT_EQ(tokenizer.decode(Ids{5, 5}), " a a");
}

TEST(Tokenizer, FindsTheControlTokenOfSeveralWithEqualBytes) {
  Vocabulary vocabulary = byte_vocabulary({"ab"}, TokenType::kNormal);
  vocabulary.tokens.emplace_back("ab");
  vocabulary.types.push_back(TokenType::kControl);
  EXPECT_EQ(Tokenizer(std::move(vocabulary)).find("ab"), 257);
}

/// A word without a break must not cost the square of its length, whichever pattern or merge it
/// meets.
TEST(Tokenizer, TakesLongWordsInOneGo) {
  using Clock = std::chrono::steady_clock;
  for (const char* name : {"smollm", "llama-bpe"}) {
    const Tokenizer tokenizer(fixture_vocabulary(name));
    for (const std::string unit :
         {"a", "e ", " ", "\n", "1", "!", "<|im_", " \n ", "ab", "'", "→"}) {
      std::string text;
      const size_t size = unit == "a" ? 1'000'000 : 200'000;
      while (text.size() < testing::small_or(size / 10, size)) text += unit;
      text += "x";
      const auto start = Clock::now();
      EXPECT_TRUE(tokenizer.decode(tokenizer.encode(text, ControlTokens::kParse)) == text);
      const std::chrono::duration<double> seconds = Clock::now() - start;
      EXPECT_LT(seconds.count(), 10.0) << name << " " << json(unit);
    }
  }
}

TEST(Tokenizer, ServesSeveralThreads) {
  const Tokenizer tokenizer(fixture_vocabulary("smollm"));
  const auto encode_all = [&] {
    std::vector<std::vector<int32_t>> ids;
    for (const std::string& text : fixture_texts()) {
      ids.push_back(tokenizer.encode(text, ControlTokens::kParse));
    }
    return ids;
  };
  const auto want = encode_all();
  std::vector<std::vector<std::vector<int32_t>>> got(3);
  std::vector<std::thread> threads;
  for (auto& ids : got) threads.emplace_back([&] { ids = encode_all(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& ids : got) EXPECT_EQ(ids, want);
}

std::string refusal(Vocabulary vocabulary) {
  try {
    const Tokenizer tokenizer(std::move(vocabulary));
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Tokenizer, RefusesAVocabularyThatContradictsItself) {
  const auto with = [](auto change) {
    Vocabulary vocabulary = byte_vocabulary({"ab"}, TokenType::kNormal);
    change(vocabulary);
    return refusal(std::move(vocabulary));
  };
  EXPECT_EQ(with([](Vocabulary& v) { v.merges = {"a b"}; }), "accepted");
  EXPECT_EQ(refusal({}), "a vocabulary has 0 tokens");
  EXPECT_EQ(with([](Vocabulary& v) { v.types.resize(5); }),
            "a vocabulary has 257 tokens, but 5 token types");
  EXPECT_EQ(with([](Vocabulary& v) { v.types[7] = TokenType{9}; }),
            "token 7 has type 9, expected 1 to 6");
  EXPECT_EQ(with([](Vocabulary& v) { v.eos = 257; }),
            "eos token is 257, the vocabulary has 257 tokens");
  EXPECT_EQ(with([](Vocabulary& v) { v.bos = -2; }),
            "bos token is -2, the vocabulary has 257 tokens");
  EXPECT_EQ(with([](Vocabulary& v) { v.add_bos = true; }),
            "prompts begin with a bos token, but the vocabulary has none");
  EXPECT_EQ(with([](Vocabulary& v) {
              v.merges = {"a b", "ab"};
            }),
            "merge 1 is 'ab', expected two tokens with a space between");
  EXPECT_EQ(with([](Vocabulary& v) { v.merges = {"a c"}; }),
            "merge 0 ('a c') needs the token 'ac', which the vocabulary lacks");
  EXPECT_TRUE(with([](Vocabulary& v) {
                v.pre_tokenizer = "none";
              }).starts_with("pre-tokenizer 'none' is not supported; supported: gpt-2, "));
}

TEST(Tokenizer, RefusesIdsOutsideTheVocabulary) {
  const Tokenizer tokenizer(byte_vocabulary({}, TokenType::kNormal));
  for (const int32_t id : {-1, 256}) {
    EXPECT_THROW((void)tokenizer.token_bytes(id), Error);
    EXPECT_THROW((void)tokenizer.is_control(id), Error);
    EXPECT_THROW((void)tokenizer.decode(std::vector{65, id}), Error);
  }
}

/// A text against a tokenizer whose added tokens are made for it.
struct Encoding {
  Tokenizer tokenizer;
  std::string text;
};
void encode(const Encoding& e) { (void)e.tokenizer.encode(e.text, ControlTokens::kParse); }

TEST(Tokenizer, TakesTimeInProportionToAddedTokensAndText) {
  // At each place a token nearly matches to its end.
  const auto near_misses = [](size_t n) {
    return Encoding{Tokenizer(byte_vocabulary({std::string(n, 'a') + 'b'}, TokenType::kControl)),
                    std::string(n, 'a')};
  };
  // At each place a short token matches, and a long one nearly does.
  const auto short_and_long = [](size_t n) {
    return Encoding{
        Tokenizer(byte_vocabulary({"a", std::string(n, 'a') + 'b'}, TokenType::kUserDefined)),
        std::string(n, 'a')};
  };
  const auto many_tokens = [](size_t n) {
    std::vector<std::string> tokens;
    std::string text;
    for (size_t i = 0; i < n; ++i) text += tokens.emplace_back("<|" + std::to_string(i) + "|>");
    return Encoding{Tokenizer(byte_vocabulary(tokens, TokenType::kUserDefined)), text};
  };
  testing::expect_linear("a long token", 4000, near_misses, encode);
  testing::expect_linear("a short and a long token", 4000, short_and_long, encode);
  testing::expect_linear("many tokens", 4000, many_tokens, encode);
}

TEST(Tokenizer, IsMadeInTimeInProportionToTheVocabulary) {
  const auto tokens = [](size_t n) {
    std::vector<std::string> more;
    for (size_t i = 0; i < n; ++i) more.push_back("t" + std::to_string(i));
    return byte_vocabulary(more, TokenType::kNormal);
  };
  const auto merges = [](size_t n) {
    std::vector<std::string> more;
    for (size_t i = 0; i < n; ++i) more.push_back("t" + std::to_string(i));
    Vocabulary vocabulary = byte_vocabulary(more, TokenType::kNormal);
    for (size_t i = 0; i < n; ++i) {
      vocabulary.tokens.push_back(more[i] + "a");
      vocabulary.types.push_back(TokenType::kNormal);
      vocabulary.merges.push_back(more[i] + " a");
    }
    return vocabulary;
  };
  // A common prefix, after which each token has to be distinguished.
  const auto added = [](size_t n) {
    std::vector<std::string> more;
    for (size_t i = 0; i < n; ++i) more.push_back("<|reserved_special_token_" + std::to_string(i));
    return byte_vocabulary(more, TokenType::kControl);
  };
  const auto make = [](const Vocabulary& vocabulary) {
    const Tokenizer made{Vocabulary(vocabulary)};
  };
  testing::expect_linear("tokens", 4000, tokens, make);
  testing::expect_linear("merges", 4000, merges, make);
  testing::expect_linear("added tokens", 2000, added, make);
}

TEST(Tokenizer, RefusesAddedTokensOfTooManyBytes) {
  const std::string part(size_t{1} << 20, 'a');
  std::vector<std::string> tokens = {part + '0', part + '1', part + '2', part.substr(3)};
  EXPECT_EQ(refusal(byte_vocabulary(tokens, TokenType::kControl)), "accepted");
  tokens.emplace_back("b");
  EXPECT_EQ(
      refusal(byte_vocabulary(tokens, TokenType::kControl)),
      "the control and user-defined tokens have 4194305 bytes in all, supported: up to 4194304");
}

TEST(Tokenizer, QuotesLittleOfTheVocabulary) {
  const std::string text = testing::hostile_text(size_t{10} << 20);
  const auto refused = [](const char* what, Vocabulary vocabulary) {
    testing::expect_clean_message(what, [&] { const Tokenizer made{std::move(vocabulary)}; });
  };
  Vocabulary vocabulary = byte_vocabulary({}, TokenType::kNormal);
  vocabulary.pre_tokenizer = text;
  refused("the pre-tokenizer", vocabulary);
  vocabulary.pre_tokenizer = "gpt-2";
  vocabulary.merges = {text};
  refused("a merge of one token", vocabulary);
  vocabulary.merges = {text + " a"};
  refused("a merge of a token that is missing", vocabulary);
  vocabulary.merges = {"a " + text};
  vocabulary.tokens.push_back(text);
  vocabulary.types.push_back(TokenType::kNormal);
  refused("a merge to a token that is missing", vocabulary);
}

}  // namespace
}  // namespace heddle::tokenizer
