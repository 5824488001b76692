// heddle_tokenizer_ids MODEL < texts.jsonl > ids.jsonl: what a model's tokenizer makes of texts,
// for comparisons with other implementations. Each line of the input is a JSON string, and gives
//
//   {"ids": [...], "text": "...", "ids_plain": [...]}
//
// with the ids of the text as ControlTokens::kParse reads it, what they decode to, and the ids by
// ControlTokens::kPlain.

#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

#include "files/gguf.h"
#include "model/model_text.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/utf8.h"

namespace heddle {
namespace {

tokenizer::Tokenizer read_tokenizer(const std::string& path) {
  if (!path.ends_with(".json")) {
    return tokenizer::Tokenizer(model::read_vocabulary(files::GgufFile(path)));
  }
  std::ifstream file(path, std::ios::binary);
  HEDDLE_CHECK(file, "cannot read ", path);
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  return tokenizer::read_tokenizer_json(json, path);
}

void run(const std::string& path) {
  const tokenizer::Tokenizer tokenizer = read_tokenizer(path);
  for (std::string line; std::getline(std::cin, line);) {
    const auto text = nlohmann::json::parse(line).get<std::string>();
    const auto ids = tokenizer.encode(text, tokenizer::ControlTokens::kParse);
    nlohmann::ordered_json result;
    result["ids"] = ids;
    result["text"] = tokenizer::replace_invalid_utf8(tokenizer.decode(ids));
    result["ids_plain"] = tokenizer.encode(text, tokenizer::ControlTokens::kPlain);
    std::cout << result.dump() << '\n';
  }
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: heddle_tokenizer_ids MODEL < texts.jsonl > ids.jsonl\n";
    return 2;
  }
  try {
    heddle::run(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "heddle_tokenizer_ids: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
