#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat_template/chat_templates.h"
#include "files/gguf.h"
#include "tokenizer/tokenizer.h"

namespace heddle::model {

/// The tokenizer's part of a GGUF file. Errors name file and key; kUnsupported where it is
/// neither byte-level BPE nor SentencePiece's BPE.
[[nodiscard]] tokenizer::Vocabulary read_vocabulary(const files::GgufFile& file);

/// Tokens that end an answer: the end of text, those that the file names the end of a turn, message
/// or part to fill in, and those that llama.cpp takes for ends by their text ("<|im_end|>").
[[nodiscard]] std::vector<int32_t> read_end_tokens(const files::GgufFile& file);

/// Warnings about the tokenizer's part, in sentences: no pre-tokenizer is named, or a token that
/// has a role does not exist.
[[nodiscard]] std::vector<std::string> read_text_warnings(const files::GgufFile& file);

/// The file's own chat templates, which may be none: tokenizer.chat_template, named "default", and
/// those that tokenizer.chat_templates lists, such as tokenizer.chat_template.tool_use.
[[nodiscard]] chat_template::ChatTemplates read_chat_templates(const files::GgufFile& file);

/// The texts of the tokens that the file has a role for, by the names that templates use.
[[nodiscard]] chat_template::SpecialTokens read_special_tokens(
    const files::GgufFile& file, const tokenizer::Tokenizer& tokenizer);

/// One message of a conversation.
struct ChatTurn {
  std::string_view role, content;
};

/// A conversation as requests give it. What is JSON is empty where it is not given.
struct Chat {
  std::span<const ChatTurn> turns{};
  std::string_view messages_json{};  // instead of turns
  std::string_view tools_json{}, documents_json{}, template_kwargs_json{};
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the text ends with the last message's content
};

/// Bytes of a rendered conversation for each token of the context; English has about four. More
/// cannot fit but in a vocabulary of tokens far longer than words.
inline constexpr int64_t kMaxChatBytesPerToken = 256;

/// The prompt of the conversation. Throws Error(kInvalidArgument) that names
/// the field where one is not JSON of its type, and with both numbers where the text has more than
/// kMaxChatBytesPerToken bytes for each token of the context, so that no template makes the
/// tokenizer read what cannot fit.
[[nodiscard]] std::string render_chat(const chat_template::ChatTemplates& templates,
                                      const Chat& chat,
                                      const chat_template::SpecialTokens& special_tokens,
                                      int64_t max_context);

}  // namespace heddle::model
