#include "tokenizer/sentencepiece_bpe.h"

#include <algorithm>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "heddle/core/error.h"

#include "random.h"
#include "readers/linear_time.h"

namespace heddle::tokenizer {
namespace {

using Ids = std::vector<int32_t>;

struct Pieces {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<TokenType> types;
  int32_t unknown = kNoToken;

  int32_t add(std::string token, float score, TokenType type = TokenType::kNormal) {
    tokens.push_back(std::move(token));
    scores.push_back(score);
    types.push_back(type);
    return static_cast<int32_t>(tokens.size()) - 1;
  }
  [[nodiscard]] SentencePieceBpe encoder() const {
    return SentencePieceBpe(tokens, scores, types, unknown);
  }
};

Ids encode(const SentencePieceBpe& encoder, std::string_view text,
           SpacePrefix prefix = SpacePrefix::kNone) {
  Ids ids;
  encoder.encode(text, prefix, ids);
  return ids;
}

int32_t find(const Pieces& pieces, const std::string& text) {
  for (size_t id = 0; id < pieces.tokens.size(); ++id) {
    if (pieces.tokens[id] == text) return static_cast<int32_t>(id);
  }
  return kNoToken;
}

std::string with_marks(const std::string& text) {
  std::string marked;
  for (const char c : text) marked += c == ' ' ? "▁" : std::string(1, c);
  return marked;
}

/// The definition, for characters of one byte: join the leftmost of the pairs whose token has the
/// highest score, start over.
Ids encode_plainly(const Pieces& pieces, const std::string& text) {
  std::vector<std::string> parts;
  for (const char c : text) parts.push_back(with_marks(std::string(1, c)));
  for (;;) {
    int32_t best = kNoToken;
    size_t place = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const int32_t id = find(pieces, parts[i] + parts[i + 1]);
      if (id == kNoToken) continue;
      if (best == kNoToken || pieces.scores[size_t(id)] > pieces.scores[size_t(best)]) {
        best = id;
        place = i;
      }
    }
    if (best == kNoToken) break;
    parts[place] += parts[place + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) {
    const int32_t id = find(pieces, part);
    if (id != kNoToken) {
      ids.push_back(id);
    } else if (ids.empty() || ids.back() != pieces.unknown) {
      ids.push_back(pieces.unknown);
    }
  }
  return ids;
}

TEST(SentencePieceBpe, JoinsThePairWithTheHighestScoreFirst) {
  using testing::random_int;
  for (int round = 0; round < 300; ++round) {
    const auto num_letters = random_int(1, 3);
    const auto word = [&](int64_t shortest, int64_t longest) {
      std::string letters;
      for (int64_t n = random_int(shortest, longest); n > 0; --n) {
        letters += "ab "[random_int(0, num_letters - 1)];
      }
      return letters;
    };
    const bool spaces_begin_words = random_int(0, 1) == 0;
    Pieces pieces;
    pieces.unknown = pieces.add("<unk>", 0, TokenType::kUnknown);
    for (int64_t n = random_int(0, 40); n > 0; --n) {  // few scores, so that many are equal
      const std::string token = word(1, 6);
      const size_t space = token.find(' ', std::min(token.find_first_not_of(' '), token.size()));
      if (spaces_begin_words && space != std::string::npos) continue;
      pieces.add(with_marks(token), static_cast<float>(random_int(-5, 5)));
    }
    const SentencePieceBpe encoder = pieces.encoder();
    for (int texts = 0; texts < 10; ++texts) {
      const std::string text = word(0, 40);
      EXPECT_EQ(encode(encoder, text), encode_plainly(pieces, text)) << text;
    }
  }
}

TEST(SentencePieceBpe, SpellsSpacesAsMarks) {
  Pieces pieces;
  const int32_t mark = pieces.add("▁", -9), a = pieces.add("a", -8), word = pieces.add("▁a", -1),
                marks = pieces.add("▁▁", -2);
  const SentencePieceBpe encoder = pieces.encoder();
  EXPECT_EQ(encode(encoder, "a a"), (Ids{a, word}));
  EXPECT_EQ(encode(encoder, "a a", SpacePrefix::kAdd), (Ids{word, word}));
  EXPECT_EQ(encode(encoder, " a", SpacePrefix::kAdd), (Ids{mark, word}));
  EXPECT_EQ(encode(encoder, "  ", SpacePrefix::kNone), (Ids{marks}));
  EXPECT_EQ(encode(encoder, "▁a"), (Ids{word}));  // the mark itself is the same
  EXPECT_EQ(encode(encoder, "", SpacePrefix::kAdd), Ids{});
  Ids ids = {7};  // encode appends
  encoder.encode("a", SpacePrefix::kNone, ids);
  EXPECT_EQ(ids, (Ids{7, a}));
}

TEST(SentencePieceBpe, FallsBackToBytesAndThenToTheUnknownToken) {
  Pieces pieces;
  const int32_t unknown = pieces.add("<unk>", 0, TokenType::kUnknown);
  const int32_t a = pieces.add("a", -1);
  const int32_t first = pieces.add("<0xC3>", 0, TokenType::kByte);
  const int32_t second = pieces.add("<0xA9>", 0, TokenType::kByte);
  pieces.unknown = unknown;
  const SentencePieceBpe encoder = pieces.encoder();
  EXPECT_EQ(encode(encoder, "aéa"), (Ids{a, first, second, a}));
  EXPECT_EQ(encode(encoder, "aèaèèéè"), (Ids{a, unknown, a, unknown, first, second, unknown}));
  EXPECT_EQ(encode(encoder, "a b"), (Ids{a, unknown}));  // one for the run
  pieces.unknown = kNoToken;
  EXPECT_EQ(encode(pieces.encoder(), "aèaé"), (Ids{a, a, first, second}));
}

TEST(SentencePieceBpe, JoinsCharactersThatAreNoTokens) {
  Pieces pieces;
  pieces.unknown = pieces.add("<unk>", 0, TokenType::kUnknown);
  const int32_t pair = pieces.add("éü", -1), more = pieces.add("éüü", -2);
  const SentencePieceBpe encoder = pieces.encoder();
  EXPECT_EQ(encode(encoder, "éüéüüü"), (Ids{pair, more, pieces.unknown}));
}

TEST(SentencePieceBpe, MakesNoControlTokenOfItsSpelling) {
  Pieces pieces;
  for (const char* letter : {"<", "/", "s", ">", "0", "x", "A"}) pieces.add(letter, -1);
  for (const char* begun : {"</", "</s", "<0", "<0x", "<0x0", "<0x0A"}) pieces.add(begun, -1);
  const size_t num_plain = pieces.tokens.size();
  pieces.add("</s>", 0, TokenType::kControl);
  pieces.add("<0x0A>", 0, TokenType::kByte);
  const SentencePieceBpe encoder = pieces.encoder();
  for (const char* text : {"</s>", "<0x0A>"}) {
    const Ids ids = encode(encoder, text);
    EXPECT_EQ(ids.size(), 2u) << text;
    for (const int32_t id : ids) EXPECT_LT(size_t(id), num_plain) << text;
  }
}

TEST(SentencePieceBpe, TakesTheFirstOfEqualTokens) {
  Pieces pieces;
  const int32_t a = pieces.add("a", -1), pair = pieces.add("aa", -2);
  pieces.add("a", 5);
  pieces.add("aa", 5);
  EXPECT_EQ(encode(pieces.encoder(), "aaa"), (Ids{pair, a}));
}

std::string refusal(const Pieces& pieces) {
  try {
    (void)pieces.encoder();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SentencePieceBpe, RefusesAVocabularyThatContradictsItself) {
  Pieces pieces;
  pieces.add("a", -1);
  EXPECT_EQ(refusal(pieces), "accepted");
  Pieces changed = pieces;
  changed.scores.push_back(1);
  EXPECT_EQ(refusal(changed), "a vocabulary has 1 tokens, but 2 scores");
  changed = pieces;
  changed.types.clear();
  EXPECT_EQ(refusal(changed), "a vocabulary has 1 tokens, but 0 token types");
  changed = pieces;
  changed.unknown = 1;
  EXPECT_EQ(refusal(changed), "unknown token is 1, the vocabulary has 1 tokens");
  changed = pieces;
  changed.scores[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(refusal(changed), "token 0 has the score NaN");
}

TEST(SentencePieceBpe, TakesAnyBytesAsTokensAndText) {
  using testing::random_int;
  const auto bytes = [](int64_t longest) {
    std::string result;
    for (int64_t n = random_int(0, longest); n > 0; --n) {
      result += testing::pick({'a', ' ', '\xC3', '\xA9', '\xE2', '\x96', '\x81', '\xF0', '\xFF'});
    }
    return result;
  };
  for (int round = 0; round < 200; ++round) {
    Pieces pieces;
    for (int64_t n = random_int(0, 20); n > 0; --n) {
      pieces.add(bytes(6), static_cast<float>(random_int(-3, 3)),
                 static_cast<TokenType>(random_int(1, 6)));
    }
    const SentencePieceBpe encoder = pieces.encoder();
    for (const int32_t id : encode(encoder, bytes(60), SpacePrefix::kAdd)) {
      EXPECT_TRUE(id >= 0 && size_t(id) < pieces.tokens.size()) << id;
    }
  }
}

TEST(SentencePieceBpe, TakesTimeInProportion) {
  struct Encoding {
    SentencePieceBpe encoder;
    std::string text;
  };
  const auto run = [](const Encoding& e) { (void)encode(e.encoder, e.text); };
  // Each level of doubling joins everything anew.
  const auto doubling = [](size_t n) {
    Pieces pieces;
    for (size_t size = 1; size <= n; size *= 2) {
      pieces.add(std::string(size, 'a'), -static_cast<float>(size));
    }
    return Encoding{pieces.encoder(), std::string(n, 'a')};
  };
  // One token grows from the left to the right.
  const auto growing = [](size_t n) {
    Pieces pieces;
    for (size_t size = 1; size <= 200; ++size) {
      pieces.add(std::string(size, 'a'), static_cast<float>(size));
    }
    return Encoding{pieces.encoder(), std::string(n, 'a')};
  };
  testing::expect_linear("doubling", 8000, doubling, run);
  testing::expect_linear("growing", 8000, growing, run);

  const auto make = [](const Pieces& pieces) { (void)pieces.encoder(); };
  const auto one_long_token = [](size_t n) {
    Pieces pieces;
    pieces.add("a", 0);
    pieces.add(std::string(n, 'a'), 0);
    return pieces;
  };
  const auto many_tokens = [](size_t n) {
    Pieces pieces;
    for (size_t i = 0; i < n; ++i) pieces.add("t" + std::to_string(i), -static_cast<float>(i));
    return pieces;
  };
  testing::expect_linear("a vocabulary with a long token", 20000, one_long_token, make);
  testing::expect_linear("a vocabulary of many tokens", 4000, many_tokens, make);
}

TEST(SentencePieceBpe, KnowsTheBytesOfATokenOfEachType) {
  EXPECT_EQ(bytes_of_sentencepiece("▁the▁", TokenType::kNormal), " the ");
  EXPECT_EQ(bytes_of_sentencepiece("▁▁", TokenType::kUserDefined), "  ");
  EXPECT_EQ(bytes_of_sentencepiece("<0x0A>", TokenType::kByte), "\n");
  EXPECT_EQ(bytes_of_sentencepiece("<0xFF>", TokenType::kByte), "\xFF");
  for (const char* no_byte : {"<0x0a>", "<0x0>", "<0x0A", "<0y0A>", "<0x0AB>"}) {
    EXPECT_EQ(bytes_of_sentencepiece(no_byte, TokenType::kByte), no_byte);
  }
  EXPECT_EQ(bytes_of_sentencepiece("<0x0A>", TokenType::kNormal), "<0x0A>");
  EXPECT_EQ(bytes_of_sentencepiece("<▁s>", TokenType::kControl), "<▁s>");
}

}  // namespace
}  // namespace heddle::tokenizer
