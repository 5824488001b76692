#include <string>

#include "engine/rules/schema/schema_rules.h"

namespace heddle::grammar {
namespace {

/// Blanks between two tokens of JSON: what an indented answer has, and no more, so that none goes
/// on with blanks for ever.
constexpr int kMaxBlanks = 32;

/// A rule for each number of blanks that may still come. What follows one ends a mask's check of
/// the many tokens that begin with a blank, so that a format compiles faster.
std::string blank_rules() {
  const std::string next = R"( (=["{}\[\],:\-0-9tfn]))";
  std::string rules = "ws ::= ws" + std::to_string(kMaxBlanks) + next + "\nws0 ::= \"\"\n";
  for (int i = 1; i <= kMaxBlanks; ++i) {
    rules += "ws" + std::to_string(i) + R"( ::= "" | [ \n\r\t] ws)" + std::to_string(i - 1) + next +
             '\n';
  }
  return rules;
}

}  // namespace

const std::string& common_rules() {
  static const std::string rules = blank_rules() + R"ebnf(
hex ::= [0-9a-fA-F]
unicode ::= [0-9abcefABCEF] hex hex hex | [dD] [0-7] hex hex | [dD] [89abAB] hex hex "\\u" [dD] [c-fC-F] hex hex
string ::= "\"" [^"\\\u0000-\u001f\ud800-\udfff]* string_rest
string_rest ::= "\"" | "\\" ["\\/bfnrt] [^"\\\u0000-\u001f\ud800-\udfff]* string_rest | "\\u" unicode [^"\\\u0000-\u001f\ud800-\udfff]* string_rest
boolean ::= "true" | "false"
integer ::= "0" | "-"? [1-9] [0-9]{0,17}
number ::= "-"? ("0" | [1-9] [0-9]{0,14}) ("." [0-9]{1,15})? ([eE] [+\-]? [0-9]{1,2})?
value ::= object | array | string | number | boolean | "null"
object ::= "{" ws ("}" | member)
member ::= string ws ":" ws value ws ("}" | "," ws member)
array ::= "[" ws ("]" | element)
element ::= value ws ("]" | "," ws element)
)ebnf";
  return rules;
}

}  // namespace heddle::grammar
