#include "model/model_text.h"

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include "heddle/core/error.h"

#include "files/json_document.h"
#include "files/printable.h"

namespace heddle::model {
namespace {

using nlohmann::ordered_json;

int32_t read_token(const files::GgufFile& file, std::string_view key, size_t vocab_size) {
  if (file.find(key) == nullptr) return tokenizer::kNoToken;
  const auto id = file.get<int64_t>(key);
  HEDDLE_CHECK(id >= 0 && id < static_cast<int64_t>(vocab_size), file.path(), ": ", key, " is ", id,
               ", the vocabulary has ", vocab_size, " tokens");
  return static_cast<int32_t>(id);
}

}  // namespace

tokenizer::Vocabulary read_vocabulary(const files::GgufFile& file) {
  const auto kind = file.get<std::string_view>("tokenizer.ggml.model");
  if (kind != "gpt2") {
    throw_error(ErrorCode::kUnsupported, file.path(), ": tokenizer.ggml.model is ",
                files::printable(kind), ", supported: gpt2 (byte-level BPE)");
  }
  tokenizer::Vocabulary vocabulary;
  const auto tokens = file.get_array<std::string_view>("tokenizer.ggml.tokens");
  vocabulary.tokens.assign(tokens.begin(), tokens.end());
  if (file.find("tokenizer.ggml.token_type") != nullptr) {
    for (const int32_t type : file.get_array<int32_t>("tokenizer.ggml.token_type")) {
      vocabulary.types.push_back(static_cast<tokenizer::TokenType>(type));
    }
  }
  const auto merges = file.get_array<std::string_view>("tokenizer.ggml.merges");
  vocabulary.merges.assign(merges.begin(), merges.end());
  vocabulary.pre_tokenizer =
      std::string(file.get_or<std::string_view>("tokenizer.ggml.pre", "gpt-2"));
  vocabulary.bos = read_token(file, "tokenizer.ggml.bos_token_id", tokens.size());
  vocabulary.eos = read_token(file, "tokenizer.ggml.eos_token_id", tokens.size());
  vocabulary.add_bos = file.get_or<bool>("tokenizer.ggml.add_bos_token", false);
  return vocabulary;
}

std::vector<int32_t> read_end_tokens(const files::GgufFile& file) {
  const files::GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  const size_t vocab_size = tokens == nullptr ? 0 : tokens->count;
  std::vector<int32_t> ids;
  for (const std::string_view key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                     "tokenizer.ggml.eom_token_id"}) {
    const int32_t id = read_token(file, key, vocab_size);
    if (id != tokenizer::kNoToken && std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

std::optional<chat_template::ChatTemplate> read_chat_template(const files::GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  if (file.find(kKey) == nullptr) return std::nullopt;
  return chat_template::ChatTemplate::parse(file.get<std::string_view>(kKey),
                                            file.path() + ": chat template");
}

std::string render_chat(const chat_template::ChatTemplate& chat_template,
                        std::span<const ChatTurn> turns, const tokenizer::Tokenizer& tokenizer,
                        int64_t max_context) {
  const auto text_of = [&](int32_t id) {
    return id == tokenizer::kNoToken ? std::string() : std::string(tokenizer.token_bytes(id));
  };
  // Member by member: a list in braces is made of arrays that no document owns.
  files::JsonDocument<ordered_json> variables(ordered_json::object());
  files::add_member(*variables, "add_generation_prompt") = true;
  files::add_member(*variables, "bos_token") = text_of(tokenizer.bos());
  files::add_member(*variables, "eos_token") = text_of(tokenizer.eos());
  ordered_json& messages = files::add_member(*variables, "messages");
  messages = ordered_json::array();
  for (const ChatTurn& turn : turns) {
    ordered_json& message = messages.emplace_back(ordered_json::object());
    files::add_member(message, "role") = turn.role;
    files::add_member(message, "content") = turn.content;
  }
  std::string text = chat_template.render(*variables);
  const auto num_bytes = static_cast<int64_t>(text.size());
  HEDDLE_CHECK((num_bytes - 1) / kMaxChatBytesPerToken < max_context, "the conversation has ",
               text.size(), " bytes as rendered by the chat template, the ", max_context,
               " tokens of the context take at most ", max_context * kMaxChatBytesPerToken);
  return text;
}

}  // namespace heddle::model
