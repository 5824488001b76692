// Tokens to a parsed template.
#pragma once

#include <memory>
#include <string_view>

#include "chat_template/syntax/ast.h"

namespace heddle::chat_template {

/// Throws Error whose text starts with "line N: ".
std::shared_ptr<Program> parse_template(std::string_view source);

}  // namespace heddle::chat_template
