#include "tokenizer/pre_tokenizer.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/core/error.h"

#include "random.h"
#include "readers/linear_time.h"

namespace heddle::tokenizer {
namespace {

/// The words with a bar between: "a| b".
std::string words(const PreTokenizer& pre_tokenizer, std::string_view text) {
  std::string joined;
  bool first = true;
  pre_tokenizer.split(text, [&](std::string_view word) {
    EXPECT_FALSE(word.empty());
    joined += first ? "" : "|";
    joined += word;
    first = false;
  });
  return joined;
}

constexpr std::string_view kText =
    "I'VE don't  3333 CamelCASEs\u0301, x=`12`!\n\n 中文かな\t$9. end  ";

struct Expected {
  std::vector<const char*> names;
  std::string words;  // of kText
  bool prefers_whole_words = false;
};

/// What the tokenizers package makes of kText by the pre-tokenizers of models of each family.
const std::vector<Expected>& expected() {
  static const std::string llama3 =
      "I|'VE| don|'t| | |333|3| CamelCASEs|\u0301,| x|=`|12|`!\n\n| 中文かな|\t|$|9|.| end|  ";
  static const std::vector<Expected> all = {
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "mellum", "a.x-4.0", "exaone4",
        "trillion", "granite-docling"},
       "I|'|VE| don|'t| | 3333| CamelCASEs|\u0301,| x|=`|12|`!|\n\n| 中文かな|\t|$|9|.| end|  "},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
        "mellum2"},
       "I|'|VE| don|'t|  |3|3|3|3| CamelCASEs|\u0301,| x|=`|1|2|`!|\n\n| 中文かな|\t|$|9|.| end| "
       " "},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
        "glm4", "glm5"},
       llama3,
       true},
      {{"chatglm-bpe", "dbrx", "smaug-bpe"}, llama3},
      {{"minicpm5"},
       "I|'VE| don|'t|  |333|3| CamelCASEs|\u0301,| x|=`|12|`!\n\n| 中文かな|\t|$|9|.| end|  ",
       true},
      {{"qwen2", "deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan", "solar-open",
        "grok-2", "bailingmoe", "bailingmoe2", "llada-moe"},
       "I|'VE| don|'t| | |3|3|3|3| CamelCASEs|\u0301,| x|=`|1|2|`!\n\n| 中文かな|\t|$|9|.| end|  "},
      {{"qwen35"},
       "I|'VE| don|'t| | |3|3|3|3| CamelCASEs\u0301|,| x|=`|1|2|`!\n\n| 中文かな|\t|$|9|.| end|  "},
      {{"seed-coder"},
       "I|'VE| don|'t| | |3|3|3|3| CamelCASEs|\u0301,| x|=`|1|2|`!|\n\n| 中文かな|\t|$|9|.| end| "
       " "},
      {{"tekken"},
       "I|'VE| don|'t| | |3|3|3|3| Camel|CASEs\u0301|,| x|=`|1|2|`!\n\n| "
       "中文かな|\t|$|9|.| end|  ",
       true},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"},
       "I'VE| don't| | |333|3| Camel|CASEs\u0301|,| x|=`|12|`!\n\n| 中文かな|\t|$|9|.| end|  "},
      {{"falcon"},
       "I|'|VE| don|'|t| | |333|3| CamelCASEs|\u0301|,| x|=`|12|`!|\n\n| 中文かな|\t|$|9|.| end| "
       " "},
      {{"deepseek-llm"},
       "I|'|VE| don|'|t|  |3|3|3|3| CamelCASEs|\u0301|,| x|=`|1|2|`!|\n|\n| |"
       "中文かな|\t$|9|.| end|  "},
      {{"deepseek-coder"},
       "I|'|VE| don|'|t|  |3|3|3|3| CamelCASEs|\u0301|,| x|=`|1|2|`|!|\n|\n| |"
       "中文かな|\t$|9|.| end|  "},
      {{"deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"},
       "I|'VE| don|'t|  |333|3| CamelCASEs\u0301|,| x|=`|12|`!\n\n| |中文かな|\t|$|9|.| end|  "},
      {{"bloom", "gpt3-finnish", "poro-chat"},
       "I'VE| don't| | 3333| CamelCASEs\u0301|,| x=`12`|!\n\n| 中文かな|\t|$9|.| end|  "},
      {{"viking"},
       "I'VE| don't| | |3|3|3|3| CamelCASEs\u0301|,| x=`|1|2|`|!\n\n| 中文かな|\t|$|9|.| end|  "},
      {{"default"},
       "I|'|VE| don|'|t| | |333|3| CamelCASEs|\u0301|,| x|=|`|12|`|!|\n\n| "
       "中文かな|\t|$|9|.| end|  "},
  };
  return all;
}

TEST(PreTokenizer, SplitsAsTheTokenizersOfEachFamilyDo) {
  for (const Expected& family : expected()) {
    for (const char* name : family.names) {
      const PreTokenizer pre_tokenizer(name);
      EXPECT_EQ(words(pre_tokenizer, kText), family.words) << name;
      EXPECT_EQ(pre_tokenizer.prefers_whole_words(), family.prefers_whole_words) << name;
    }
  }
}

TEST(PreTokenizer, LeavesNoGaps) {
  using testing::random_int;
  for (const Expected& family : expected()) {
    const PreTokenizer pre_tokenizer(family.names.front());
    for (int round = 0; round < 50; ++round) {
      std::string text, joined;
      for (int64_t n = random_int(0, 60); n > 0; --n) {
        text +=
            testing::pick<const char*>({" ", "\n", "\r", "\t", "a", "É", "é", "中", "1", "\u0662",
                                        "'s", "'", "!", "=", "(", "\u0301", "\u3000", "\u0378"});
      }
      pre_tokenizer.split(text, [&](std::string_view word) { joined += word; });
      EXPECT_EQ(joined, text) << family.names.front();
    }
  }
}

TEST(PreTokenizer, KnowsTheWordsThatTellSimilarFamiliesApart) {
  EXPECT_EQ(words(PreTokenizer("deepseek-llm"), "a  \n b   "), "a|  |\n| b|   ");
  EXPECT_EQ(words(PreTokenizer("deepseek-llm"), "a   \u01BB"), "a|   \u01BB");  // no end, no case
  EXPECT_EQ(words(PreTokenizer("deepseek-coder"), "a   \u01BB"), "a|  | \u01BB");
  EXPECT_EQ(words(PreTokenizer("gpt-4o"), "HTTPServer's/\n/x"), "HTTPServer's|/\n/|x");
  EXPECT_EQ(words(PreTokenizer("tekken"), "aBcDE fG"), "a|Bc|DE| f|G");
  EXPECT_EQ(words(PreTokenizer("default"), "a`b 12345"), "a|`|b| |123|45");
  EXPECT_EQ(words(PreTokenizer("falcon"), "a`b 12345"), "a|`|b| |123|45");
}

TEST(PreTokenizer, TakesTimeInProportion) {
  struct Splitting {
    PreTokenizer pre_tokenizer;
    std::string text;
  };
  for (const Expected& family : expected()) {
    for (const std::string unit : {" ", "\n", " \n", "A", "a", "Aa", "中", "中A", "1", "!", "'",
                                   "\u0301", "\u0301A", "a ", "  a", "'s", "A'"}) {
      // The end is what a pattern may hope for all along.
      for (const std::string end : {"", "x", "\n"}) {
        const auto make = [&](size_t n) {
          Splitting splitting{PreTokenizer(family.names.front()), ""};
          while (splitting.text.size() < n) splitting.text += unit;
          splitting.text += end;
          return splitting;
        };
        const auto split = [](const Splitting& s) { s.pre_tokenizer.split(s.text, [](auto) {}); };
        testing::expect_linear(std::string(family.names.front()) + " of " + unit + "..." + end,
                               2000, make, split);
      }
    }
  }
}

TEST(PreTokenizer, RefusesANameThatIsNotKnown) {
  for (const char* name : {"", "none", "gpt-2 ", "GPT-2"}) {
    try {
      const PreTokenizer made(name);
      ADD_FAILURE() << name << " is accepted";
    } catch (const Error& error) {
      const std::string want =
          "pre-tokenizer '" + std::string(name) + "' is not supported; supported: gpt-2, phi-2, ";
      EXPECT_EQ(std::string(error.what()).substr(0, want.size()), want);
    }
  }
}

}  // namespace
}  // namespace heddle::tokenizer
