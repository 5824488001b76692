#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "files/gguf.h"
#include "tokenizer/tokenizer.h"

namespace heddle::model {
namespace {

tokenizer::Vocabulary read_vocabulary(const files::GgufFile& file) {
  tokenizer::Vocabulary vocabulary;
  for (const auto token : file.get_array<std::string_view>("tokenizer.ggml.tokens")) {
    vocabulary.tokens.emplace_back(token);
  }
  for (const auto type : file.get_array<int32_t>("tokenizer.ggml.token_type")) {
    vocabulary.types.push_back(tokenizer::TokenType{type});
  }
  for (const auto merge : file.get_array<std::string_view>("tokenizer.ggml.merges")) {
    vocabulary.merges.emplace_back(merge);
  }
  vocabulary.pre_tokenizer = file.get<std::string_view>("tokenizer.ggml.pre");
  return vocabulary;
}

nlohmann::json read_fixture(const std::string& name) {
  return nlohmann::json::parse(
      std::ifstream(HEDDLE_SOURCE_DIR "/tests/fixtures/tokenizer/" + name));
}

TEST(ModelTokenizer, GivesTheIdsOfTheTokenizersPackage) {
  const char* const path = std::getenv("HEDDLE_MODEL");
  ASSERT_NE(path, nullptr) << "HEDDLE_MODEL names no model";
  const tokenizer::Tokenizer tokenizer(read_vocabulary(files::GgufFile(path)));
  const auto texts = read_fixture("texts.json").get<std::vector<std::string>>();
  const auto want = read_fixture("smollm2_ids.json").get<std::vector<std::vector<int32_t>>>();
  ASSERT_EQ(texts.size(), want.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(tokenizer.encode(texts[i], tokenizer::ControlTokens::kParse), want[i])
        << "text " << i << ": " << nlohmann::json(texts[i]);
  }
}

}  // namespace
}  // namespace heddle::model
