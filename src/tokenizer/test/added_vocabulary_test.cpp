// Added tokens of tokenizer.json next to one another, at white space and at words. The ids are
// those of tokenizers 0.23 for this file and these texts.
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tokenizer/tokenizer_json.h"

namespace heddle::tokenizer {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

/// Characters are tokens; texts become lower case but for the tokens that are not normalized.
Tokenizer characters_and_added() {
  json file = json::parse(R"({"version": "1.0", "added_tokens": [],
      "normalizer": {"type": "Lowercase"}, "pre_tokenizer": null, "post_processor": null,
      "decoder": {"type": "Fuse"}, "model": {"type": "BPE", "merges": []}})");
  json& vocabulary = file["model"]["vocab"] = json::object();
  for (const char* character : {"a", "b", "_", " ", "\u3000", "\u00e9", ".", "1", "\n"}) {
    vocabulary[character] = vocabulary.size();
  }
  const auto add = [&file](const char* content, std::initializer_list<const char*> flags) {
    json token = {{"id", 9 + file["added_tokens"].size()},
                  {"content", content},
                  {"single_word", false},
                  {"lstrip", false},
                  {"rstrip", false},
                  {"normalized", false},
                  {"special", false}};
    for (const char* flag : flags) token[flag] = true;
    file["added_tokens"].push_back(std::move(token));
  };
  add("<L>", {"lstrip"});
  add("<R>", {"rstrip"});
  add("<LR>", {"lstrip", "rstrip"});
  add("<W>", {"single_word"});
  add("<WLR>", {"single_word", "lstrip", "rstrip"});
  add("AB", {"normalized"});
  add("BA", {"single_word", "normalized"});
  add("<N>", {});
  add("bb", {"single_word"});
  return read_tokenizer_json(file.dump(), "tokenizer.json");
}

TEST(AddedVocabulary, TakesWhiteSpaceAndStandsAtWordsAsThePackageHasIt) {
  struct Case {
    std::string text;
    Ids ids;
  };
  const std::vector<Case> cases = {{"a <L> b", {0, 9, 3, 1}},
                                   {"a  <L>b", {0, 9, 1}},
                                   {"a\n\u3000<L> <L> b", {0, 9, 9, 3, 1}},
                                   {"<L> <L>", {9, 9}},
                                   {" <L>", {9}},
                                   {"a <R> b", {0, 3, 10, 1}},
                                   {"<R>  \u3000b", {10, 1}},
                                   {"<R> <R> <R>", {10, 10, 10}},
                                   {"a <R> <L> b", {0, 3, 10, 9, 3, 1}},
                                   {"a <R> <L>b", {0, 3, 10, 9, 1}},
                                   {"<R> <N>", {10, 16}},
                                   {"<N> <L>", {16, 9}},
                                   {"a <LR> b", {0, 11, 1}},
                                   {" <LR> <LR> ", {11, 11}},
                                   {"a<W>b", {0, 1}},
                                   {"a <W> b", {0, 3, 12, 3, 1}},
                                   {"<W>", {12}},
                                   {"a<W>", {0}},
                                   {"<W>b", {1}},
                                   {"_<W>", {2}},
                                   {"<W>_", {2}},
                                   {"\u00e9<W>", {5}},
                                   {"1<W>", {7}},
                                   {".<W>.", {6, 12, 6}},
                                   {"<W><W>", {12, 12}},
                                   {"<N><W>", {16, 12}},
                                   {"a <WLR> b", {0, 13, 1}},
                                   {"a<WLR> b", {0, 3, 1}},
                                   {"a <WLR>b", {0, 3, 1}},
                                   {"ab", {14}},
                                   {"AB", {14}},
                                   {"aB ab", {14, 3, 14}},
                                   {"abab", {14, 14}},
                                   {"ba", {15}},
                                   {"BA.", {15, 6}},
                                   {"aba", {14, 0}},
                                   {"a ba b", {0, 3, 15, 3, 1}},
                                   {"bab", {1, 0, 1}},
                                   {"1ba", {7, 1, 0}},
                                   {"ba_", {1, 0, 2}},
                                   {"bb", {17}},
                                   {"abb", {14, 1}},
                                   {"bba", {1, 1, 0}},
                                   {"bb bb", {17, 3, 17}},
                                   {".bb.", {6, 17, 6}},
                                   {"bbb", {1, 1, 1}},
                                   {"<l>", {}},
                                   {"<L", {}},
                                   {"<L><R>", {9, 10}},
                                   {"a <L>\n<R> \n<LR> b", {0, 9, 8, 10, 11, 1}},
                                   {"", {}}};
  const Tokenizer tokenizer = characters_and_added();
  for (const Case& one : cases) {
    EXPECT_EQ(tokenizer.encode(one.text, ControlTokens::kParse), one.ids) << json(one.text);
  }
}

}  // namespace
}  // namespace heddle::tokenizer
