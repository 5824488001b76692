#include "tokenizer/huggingface/model_vocabulary.h"

#include <algorithm>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/printable.h"
#include "tokenizer/tokenizer.h"

namespace heddle::tokenizer {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 30;

}  // namespace

int32_t ModelVocabulary::find(std::string_view token) const {
  const auto found = ids.find(token);
  return found == ids.end() ? kNoToken : found->second;
}

void check_holes(int64_t end_id, size_t num_tokens, const std::string& where) {
  constexpr int64_t kMoreRows = 1 << 16;
  if (end_id > 4 * static_cast<int64_t>(num_tokens) + kMoreRows) {
    throw_error(ErrorCode::kUnsupported, where, " has ", num_tokens, " tokens and an id of ",
                end_id - 1, ", which leaves more unused ids than are supported");
  }
}

ModelVocabulary read_token_ids(const JsonNode& node) {
  ModelVocabulary vocabulary;
  const auto& tokens = node.object();
  vocabulary.ids.reserve(tokens.size());
  for (const auto& member : tokens) {
    const std::string_view token = member.key();
    const auto value = files::integer_in(member.value(), 0, kMaxTokens - 1);
    HEDDLE_CHECK(value, node.path(), ": token ", files::quote(token), " has the id ",
                 files::printable(files::json_text(member.value())), ", expected 0 to ",
                 kMaxTokens - 1);
    const auto id = static_cast<int32_t>(*value);
    vocabulary.end_id = std::max(vocabulary.end_id, id + 1);
    vocabulary.ids.emplace(token, id);
  }
  check_holes(vocabulary.end_id, tokens.size(), node.path());
  std::vector<std::string_view> token_of(static_cast<size_t>(vocabulary.end_id));
  std::vector<bool> taken(token_of.size());
  for (const auto& member : tokens) {
    const std::string_view token = member.key();
    const auto id = static_cast<int32_t>(member.value().as_int64());
    const auto row = static_cast<size_t>(id);
    HEDDLE_CHECK(!taken[row], node.path(), ": tokens ", files::quote(token_of[row]), " and ",
                 files::quote(token), " have the same id ", id);
    taken[row] = true;
    token_of[row] = token;
  }
  return vocabulary;
}

}  // namespace heddle::tokenizer
