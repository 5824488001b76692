#pragma once

#include <map>
#include <string>

namespace heddle::chat_template {

/// The tokenizer's own tokens by the name that templates know: {"bos_token", "<s>"}. What a
/// tokenizer does not have is not there.
using SpecialTokens = std::map<std::string, std::string>;

}  // namespace heddle::chat_template
