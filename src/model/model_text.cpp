#include "model/model_text.h"

#include <algorithm>
#include <map>
#include <utility>

#include "heddle/core/error.h"

#include "chat_template/conversation.h"
#include "files/json_tree.h"
#include "files/json_value.h"
#include "files/printable.h"

namespace heddle::model {
namespace {

using files::Json;
using files::JsonTree;

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
  if (kind != "gpt2" && kind != "llama") {
    throw_error(ErrorCode::kUnsupported, file.path(), ": tokenizer.ggml.model is ",
                files::printable(kind),
                ", supported: gpt2 (byte-level BPE), llama (SentencePiece)");
  }
  const bool has_scores = kind == "llama";
  tokenizer::Vocabulary vocabulary;
  vocabulary.kind = has_scores ? tokenizer::VocabularyKind::kSentencePieceBpe
                               : tokenizer::VocabularyKind::kByteLevelBpe;
  const auto tokens = file.get_array<std::string_view>("tokenizer.ggml.tokens");
  vocabulary.tokens.assign(tokens.begin(), tokens.end());
  if (file.find("tokenizer.ggml.token_type") != nullptr) {
    for (const int32_t type : file.get_array<int32_t>("tokenizer.ggml.token_type")) {
      vocabulary.types.push_back(static_cast<tokenizer::TokenType>(type));
    }
  }
  if (has_scores) {
    vocabulary.scores = file.get_array<float>("tokenizer.ggml.scores");
    vocabulary.add_space_prefix = file.get_or<bool>("tokenizer.ggml.add_space_prefix", true);
  } else {
    const auto merges = file.get_array<std::string_view>("tokenizer.ggml.merges");
    vocabulary.merges.assign(merges.begin(), merges.end());
  }
  vocabulary.pre_tokenizer =
      std::string(file.get_or<std::string_view>("tokenizer.ggml.pre", "gpt-2"));
  vocabulary.bos = read_token(file, "tokenizer.ggml.bos_token_id", tokens.size());
  vocabulary.eos = read_token(file, "tokenizer.ggml.eos_token_id", tokens.size());
  vocabulary.add_bos = file.get_or<bool>("tokenizer.ggml.add_bos_token",
                                         has_scores && vocabulary.bos != tokenizer::kNoToken);
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

chat_template::ChatTemplates read_chat_templates(const files::GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.chat_template", kNames = "tokenizer.chat_templates";
  std::map<std::string, std::string> sources;
  if (file.find(kKey) != nullptr) sources["default"] = file.get<std::string_view>(kKey);
  if (file.find(kNames) != nullptr) {
    for (const std::string_view name : file.get_array<std::string_view>(kNames)) {
      sources[std::string(name)] =
          file.get<std::string_view>(std::string(kKey) + "." + std::string(name));
    }
  }
  return chat_template::ChatTemplates::from(sources, file.path() + ": chat template");
}

chat_template::SpecialTokens read_special_tokens(const files::GgufFile& file,
                                                 const tokenizer::Tokenizer& tokenizer) {
  // "seperator" is how the format spells it.
  static constexpr std::pair<const char*, std::string_view> kTokens[] = {
      {"bos_token", "tokenizer.ggml.bos_token_id"},
      {"eos_token", "tokenizer.ggml.eos_token_id"},
      {"unk_token", "tokenizer.ggml.unknown_token_id"},
      {"sep_token", "tokenizer.ggml.seperator_token_id"},
      {"pad_token", "tokenizer.ggml.padding_token_id"},
      {"cls_token", "tokenizer.ggml.cls_token_id"},
      {"mask_token", "tokenizer.ggml.mask_token_id"}};
  chat_template::SpecialTokens special;
  for (const auto& [name, key] : kTokens) {
    const int32_t id = read_token(file, key, static_cast<size_t>(tokenizer.vocab_size()));
    if (id != tokenizer::kNoToken) special[name] = tokenizer.token_bytes(id);
  }
  return special;
}

namespace {

/// JSON nests no deeper in a conversation that anyone means; the template's values have a bound of
/// their own.
constexpr size_t kMaxJsonDepth = 100;

JsonTree parse_field(std::string_view text, const char* name) {
  if (text.empty()) return {};
  return files::parse_json(text, name, {.depth = kMaxJsonDepth});
}

JsonTree messages_of(std::span<const ChatTurn> turns) {
  JsonTree tree;
  files::JsonArray& messages = tree->emplace_array();
  for (const ChatTurn& turn : turns) {
    files::JsonObject& message = messages.emplace_back(nullptr).emplace_object();
    message.emplace("role", turn.role);
    message.emplace("content", turn.content);
  }
  return tree;
}

std::string stripped(std::string_view text) {
  constexpr const char* kSpaces = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1));
}

/// What the last message says: its content, or the text of its last part.
std::string last_content(const Json& messages) {
  const auto last_of = [](const Json& list, const char* key) {
    const files::JsonArray* const array = list.if_array();
    return array == nullptr || array->empty() ? nullptr : files::find_member(array->back(), key);
  };
  const Json* text = last_of(messages, "content");
  if (text != nullptr && text->is_array()) text = last_of(*text, "text");
  return std::string(text != nullptr && text->is_string() ? files::text_of(*text) : "");
}

/// Cuts off what the template wrote behind the last message's content, which may have lost the
/// spaces around it.
void end_in_message(std::string& text, const std::string& content) {
  const std::string core = stripped(content);
  const size_t place = core.empty() ? std::string::npos : text.rfind(core);
  HEDDLE_CHECK(place != std::string::npos,
               "continue_final_message: the last message's content is not in the rendered text");
  const std::string with_end = content.substr(content.find(core));
  const bool keeps_end = text.compare(place, with_end.size(), with_end) == 0;
  text.resize(place + (keeps_end ? with_end.size() : core.size()));
}

}  // namespace

std::string render_chat(const chat_template::ChatTemplates& templates, const Chat& chat,
                        const chat_template::SpecialTokens& special_tokens, int64_t max_context) {
  JsonTree messages = chat.messages_json.empty() ? messages_of(chat.turns)
                                                 : parse_field(chat.messages_json, "messages_json");
  std::string content;
  if (chat.continue_final_message) {
    HEDDLE_CHECK(!chat.add_generation_prompt,
                 "continue_final_message and add_generation_prompt are both set");
    content = last_content(*messages);
  }
  std::string text =
      templates.render({.messages = std::move(messages),
                        .tools = parse_field(chat.tools_json, "tools_json"),
                        .documents = parse_field(chat.documents_json, "documents_json"),
                        .kwargs = parse_field(chat.template_kwargs_json, "template_kwargs_json"),
                        .add_generation_prompt = chat.add_generation_prompt},
                       special_tokens);
  if (chat.continue_final_message) end_in_message(text, content);
  const auto num_bytes = static_cast<int64_t>(text.size());
  HEDDLE_CHECK((num_bytes - 1) / kMaxChatBytesPerToken < max_context, "the conversation has ",
               text.size(), " bytes as rendered by the chat template, the ", max_context,
               " tokens of the context take at most ", max_context * kMaxChatBytesPerToken);
  return text;
}

}  // namespace heddle::model
