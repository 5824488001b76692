#pragma once

#include <cstdint>
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

/// Bytes of a rendered conversation for each token of the context; English has about four. More
/// cannot fit but in a vocabulary of tokens far longer than words.
inline constexpr int64_t kMaxChatBytesPerToken = 256;

/// The text that asks for an answer to the conversation. Throws Error(kInvalidArgument) with both
/// numbers where it has more than kMaxChatBytesPerToken bytes for each token of the context, so
/// that no template makes the tokenizer read what cannot fit.
[[nodiscard]] std::string render_chat(const chat_template::ChatTemplate& chat_template,
                                      std::span<const ChatTurn> turns,
                                      const tokenizer::Tokenizer& tokenizer, int64_t max_context);

}  // namespace heddle::model
