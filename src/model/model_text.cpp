#include "model/model_text.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "heddle/core/error.h"

#include "chat_template/conversation.h"
#include "files/json_tree.h"
#include "files/json_value.h"
#include "files/printable.h"
#include "model/config/words.h"
#include "model/continued_message.h"

namespace heddle::model {
namespace {

using files::Json;
using files::JsonTree;

/// The token of a role; none where it is beyond the vocabulary, of which read_text_warnings tells.
int32_t read_token(const files::GgufFile& file, std::string_view key, size_t vocab_size) {
  if (file.find(key) == nullptr) return tokenizer::kNoToken;
  const auto id = file.get<int64_t>(key);
  const bool is_known = id >= 0 && id < static_cast<int64_t>(vocab_size);
  return is_known ? static_cast<int32_t>(id) : tokenizer::kNoToken;
}

constexpr std::string_view kPre = "tokenizer.ggml.pre";
constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";

// "seperator" is how the format spells it.
constexpr std::pair<const char*, std::string_view> kRoles[] = {
    {"bos_token", "tokenizer.ggml.bos_token_id"},
    {"eos_token", "tokenizer.ggml.eos_token_id"},
    {"unk_token", "tokenizer.ggml.unknown_token_id"},
    {"sep_token", "tokenizer.ggml.seperator_token_id"},
    {"pad_token", "tokenizer.ggml.padding_token_id"},
    {"cls_token", "tokenizer.ggml.cls_token_id"},
    {"mask_token", "tokenizer.ggml.mask_token_id"}};

/// Tokens that llama.cpp lets end an answer by their text, whatever the file says of them.
constexpr std::string_view kEndTexts =
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> "
    "<|endoftext|> </s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> "
    "<eos> <turn|> <|tool_response>";
/// Where a vocabulary has both of the first, the third ends a part of an answer alone.
constexpr std::string_view kHarmony[] = {"<|return|>", "<|call|>", "<|end|>"};

/// Which of the tokens end an answer by their text. A text that merges make is plain text to the
/// model, such as "</s>" in the vocabulary of Qwen.
class EndTexts {
 public:
  explicit EndTexts(const files::GgufFile& file) {
    for_words(kEndTexts, [&](std::string_view text) { texts_.push_back(text); });
    if (file.find(kMerges) == nullptr) return;
    for (const std::string_view merge : file.get_array<std::string_view>(kMerges)) {
      if (merge.size() > kLongest || merge.empty()) continue;
      std::string merged(merge);
      if (const size_t space = merged.find(' ', 1); space != merged.npos) merged.erase(space, 1);
      std::erase(texts_, merged);
    }
  }

  [[nodiscard]] bool has(std::string_view token) const {
    return std::ranges::find(texts_, token) != texts_.end();
  }

 private:
  static constexpr size_t kLongest = 24;  // of a merge that may make one of them

  std::vector<std::string_view> texts_;
};

std::string_view pre_tokenizer_of(const files::GgufFile& file) {
  return file.get_or<std::string_view>(kPre, "default");
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
  const auto tokens = file.get_array<std::string_view>(kTokens);
  vocabulary.tokens.assign(tokens.begin(), tokens.end());
  if (file.find("tokenizer.ggml.token_type") != nullptr) {
    for (const int32_t type : file.get_array<int32_t>("tokenizer.ggml.token_type")) {
      vocabulary.types.push_back(static_cast<tokenizer::TokenType>(type));
    }
  }
  // As llama.cpp has it, whatever their type.
  const EndTexts end_texts(file);
  for (size_t id = 0; id < vocabulary.types.size() && id < tokens.size(); ++id) {
    if (end_texts.has(tokens[id])) vocabulary.types[id] = tokenizer::TokenType::kControl;
  }
  if (has_scores) {
    vocabulary.scores = file.get_array<float>("tokenizer.ggml.scores");
    vocabulary.add_space_prefix = file.get_or<bool>("tokenizer.ggml.add_space_prefix", true);
  } else {
    const auto merges = file.get_array<std::string_view>(kMerges);
    vocabulary.merges.assign(merges.begin(), merges.end());
  }
  vocabulary.pre_tokenizer = std::string(pre_tokenizer_of(file));
  vocabulary.bos = read_token(file, "tokenizer.ggml.bos_token_id", tokens.size());
  vocabulary.eos = read_token(file, "tokenizer.ggml.eos_token_id", tokens.size());
  vocabulary.add_bos = file.get_or<bool>("tokenizer.ggml.add_bos_token",
                                         has_scores && vocabulary.bos != tokenizer::kNoToken);
  return vocabulary;
}

std::vector<int32_t> read_end_tokens(const files::GgufFile& file) {
  const files::GgufValue* tokens = file.find(kTokens);
  const size_t vocab_size = tokens == nullptr ? 0 : tokens->count;
  std::vector<int32_t> ids;
  const auto add = [&](int32_t id) {
    if (id != tokenizer::kNoToken && std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  };
  for (const std::string_view key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id",
        "tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id",
        "tokenizer.ggml.fim_sep_token_id"}) {
    add(read_token(file, key, vocab_size));
  }
  if (tokens == nullptr) return ids;
  const auto texts = file.get_array<std::string_view>(kTokens);
  const auto has = [&](std::string_view text) {
    return std::ranges::find(texts, text) != texts.end();
  };
  const bool is_harmony = has(kHarmony[0]) && has(kHarmony[1]);
  const EndTexts end_texts(file);
  for (size_t id = 0; id < texts.size(); ++id) {
    if (end_texts.has(texts[id]) && !(is_harmony && texts[id] == kHarmony[2]))
      add(static_cast<int32_t>(id));
  }
  return ids;
}

std::vector<std::string> read_text_warnings(const files::GgufFile& file) {
  std::vector<std::string> warnings;
  const files::GgufValue* tokens = file.find(kTokens);
  if (tokens == nullptr) return warnings;
  if (file.find(kPre) == nullptr &&
      file.get_or<std::string_view>("tokenizer.ggml.model", "") == "gpt2") {
    warnings.push_back(file.path() + ": has no " + std::string(kPre) +
                       ", text is split as llama.cpp's \"default\" does, which may not be how the "
                       "model was trained; a newer conversion of the model names its pattern");
  }
  for (const auto& [role, key] : kRoles) {
    if (file.find(key) == nullptr) continue;
    const auto id = file.get<int64_t>(key);
    if (id >= 0 && id < static_cast<int64_t>(tokens->count)) continue;
    warnings.push_back(file.path() + ": " + std::string(key) + " is " + std::to_string(id) +
                       ", the vocabulary has " + std::to_string(tokens->count) +
                       " tokens: there is no " + role);
  }
  return warnings;
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
  chat_template::SpecialTokens special;
  for (const auto& [name, key] : kRoles) {
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

/// Parts of messages that are no text, by what OpenAI's and Hugging Face's clients call them.
constexpr std::string_view kMediaTypes[] = {"image", "image_url", "input_image",
                                            "audio", "audio_url", "input_audio",
                                            "video", "video_url", "input_video"};

/// A template would put a mark in the place of an image, and the model would see the mark alone.
void refuse_media(const Json& messages) {
  const files::JsonArray* const list = messages.if_array();
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const Json* const content = files::find_member((*list)[i], "content");
    const files::JsonArray* const parts = content == nullptr ? nullptr : content->if_array();
    for (size_t j = 0; parts != nullptr && j < parts->size(); ++j) {
      const Json* const type = files::find_member((*parts)[j], "type");
      if (type == nullptr || !type->is_string()) continue;
      const std::string_view name = files::text_of(*type);
      if (std::ranges::find(kMediaTypes, name) == std::end(kMediaTypes)) continue;
      throw_error(ErrorCode::kUnsupported, "messages[", i, "].content[", j, "] is of type ", name,
                  ": images, sound and video are not supported; only text is");
    }
  }
}

/// A mark that is in no text of the conversation.
std::string mark_for(const Chat& chat) {
  for (int64_t i = 0;; ++i) {
    std::string mark = "THE_ANSWER_GOES_ON_HERE_" + std::to_string(i);
    const auto has_mark = [&mark](std::string_view text) { return text.find(mark) != text.npos; };
    const bool is_in_turns = std::ranges::any_of(
        chat.turns, [&](const ChatTurn& turn) { return has_mark(turn.content); });
    if (!is_in_turns && !has_mark(chat.messages_json)) return mark;
  }
}

}  // namespace

std::string render_chat(const chat_template::ChatTemplates& templates, const Chat& chat,
                        const chat_template::SpecialTokens& special_tokens, int64_t max_context) {
  JsonTree messages = chat.messages_json.empty() ? messages_of(chat.turns)
                                                 : parse_field(chat.messages_json, "messages_json");
  refuse_media(*messages);
  std::optional<ContinuedMessage> continued;
  if (chat.continue_final_message) {
    HEDDLE_CHECK(
        !chat.add_generation_prompt,
        "continue_final_message and add_generation_prompt are both set; set only one of them");
    continued.emplace(*messages, mark_for(chat));
  }
  std::string text =
      templates.render({.messages = std::move(messages),
                        .tools = parse_field(chat.tools_json, "tools_json"),
                        .documents = parse_field(chat.documents_json, "documents_json"),
                        .kwargs = parse_field(chat.template_kwargs_json, "template_kwargs_json"),
                        .add_generation_prompt = chat.add_generation_prompt,
                        .is_from_client = true},
                       special_tokens);
  if (continued) continued->end_text(text);
  const auto num_bytes = static_cast<int64_t>(text.size());
  HEDDLE_CHECK((num_bytes - 1) / kMaxChatBytesPerToken < max_context, "the conversation has ",
               text.size(), " bytes as rendered by the chat template, the ", max_context,
               " tokens of the context take at most ", max_context * kMaxChatBytesPerToken);
  return text;
}

}  // namespace heddle::model
