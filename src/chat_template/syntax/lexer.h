// A template's source as tokens, with white space control applied as jinja2 does under trim_blocks
// and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::chat_template {

struct Token {
  enum class Kind : uint8_t {
    kText,         // what stands outside of all tags
    kOutputBegin,  // {{
    kOutputEnd,    // }}
    kTagBegin,     // {%
    kTagEnd,       // %}
    kName,
    kString,    // text: the value, escapes resolved
    kInteger,   // text: as written, without underscores
    kFloat,     // text: as written, without underscores
    kOperator,  // text: the operator
    kEnd,
  };
  Kind kind;
  int line;  // from 1
  std::string text;
};

/// Comments are left out, raw blocks are text; the last token is kEnd. Throws
/// Error(kInvalidArgument) that starts with "line N: ".
std::vector<Token> tokenize(std::string_view source);

}  // namespace heddle::chat_template
