#include "tokenizer/huggingface/characters.h"

#include <gtest/gtest.h>

namespace heddle::tokenizer {
namespace {

TEST(Characters, AreTakenAndAppended) {
  const std::string text = "a\u00E9\u4E2D\U0001F600\U0010FFFF";
  std::string copy;
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) append_character(take_character(text, at), copy);
  EXPECT_EQ(copy, text);
  EXPECT_EQ(count, 5u);
  EXPECT_EQ(last_character("a中"), 1u);
  EXPECT_EQ(last_character("a"), 0u);
}

TEST(Characters, HaveClasses) {
  EXPECT_TRUE(is_white_space(U'\u3000') && is_white_space(U'\u0085') && is_white_space(U'\v'));
  EXPECT_FALSE(is_white_space(U'\u180E') || is_white_space(U'\u200B') || is_white_space(0x1C));
  EXPECT_TRUE(is_numeric(U'½') && is_numeric(U'Ⅷ') && is_numeric(U'٣') && is_numeric(U'7'));
  EXPECT_FALSE(is_numeric(U'a') || is_numeric(U'中'));
  EXPECT_TRUE(is_punctuation(U'$') && is_punctuation(U'。') && is_punctuation(U'_'));
  EXPECT_FALSE(is_punctuation(U'€') || is_punctuation(U' ') || is_punctuation(U'a'));
  EXPECT_TRUE(is_word_character(U'_') && is_word_character(U'\u0301') && is_word_character(U'中'));
  EXPECT_TRUE(is_word_character(0x24B6) && is_word_character(0x200D));
  EXPECT_FALSE(is_word_character(U'½') || is_word_character(U'-') || is_word_character(U' '));
}

TEST(Characters, HaveNormalForms) {
  const std::string text = "e\u0301 \u00E9 \uFB01 \u1E69 s\u0307\u0323 \uD55C \u0344";
  EXPECT_EQ(to_normal_form(text, NormalForm::kNfc),
            "\u00E9 \u00E9 \uFB01 \u1E69 \u1E69 \uD55C \u0308\u0301");
  EXPECT_EQ(to_normal_form(text, NormalForm::kNfd),
            "e\u0301 e\u0301 \uFB01 s\u0323\u0307 s\u0323\u0307 \u1112\u1161\u11AB \u0308\u0301");
  EXPECT_EQ(to_normal_form("\uFB01 \u33A1 \uFF21", NormalForm::kNfkc), "fi m2 A");
  EXPECT_EQ(to_normal_form("\u00BD \u00C5", NormalForm::kNfkd), "1\u20442 A\u030A");
  EXPECT_EQ(to_normal_form("abc \u00E9\n", NormalForm::kNfc), "abc \u00E9\n");
  // What came after the Unicode of the tokenizers package stays.
  EXPECT_EQ(to_normal_form("\u32FF", NormalForm::kNfkc), "\u32FF");
}

TEST(Characters, HaveLowerCase) {
  EXPECT_EQ(to_lower("AÉΣΑΣ \u0130 \u1E9E ǅ"), "aéσασ i\u0307 ß ǆ");
}

}  // namespace
}  // namespace heddle::tokenizer
