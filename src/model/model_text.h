#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat_template/chat_template.h"
#include "files/gguf.h"
#include "tokenizer/tokenizer.h"

namespace heddle::model {

/// The tokenizer's part of a GGUF file. Errors name file and key; kUnsupported where it is no
/// byte-level BPE.
[[nodiscard]] tokenizer::Vocabulary read_vocabulary(const files::GgufFile& file);

/// Tokens that end an answer: the end of text and, where the file names one, the end of a turn or
/// message.
[[nodiscard]] std::vector<int32_t> read_end_tokens(const files::GgufFile& file);

/// The file's own chat template, nothing where it has none.
[[nodiscard]] std::optional<chat_template::ChatTemplate> read_chat_template(
    const files::GgufFile& file);

/// One message of a conversation.
struct ChatTurn {
  std::string_view role, content;
};

/// The text that asks for an answer to the conversation.
[[nodiscard]] std::string render_chat(const chat_template::ChatTemplate& chat_template,
                                      std::span<const ChatTurn> turns,
                                      const tokenizer::Tokenizer& tokenizer);

}  // namespace heddle::model
