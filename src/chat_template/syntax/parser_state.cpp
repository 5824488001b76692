// The parser's way through the tokens.
#include "chat_template/syntax/parser_state.h"

#include "files/printable.h"

namespace heddle::chat_template {

using Kind = Token::Kind;

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (parser_.nesting_ >= kMaxNodeHeight) {
    parser_.fail("blocks and expressions nest deeper than " + std::to_string(kMaxNodeHeight));
  }
  ++parser_.nesting_;
}

void Parser::fail_at(int line, ErrorCode code, const std::string& what) const {
  throw_error(code, "line ", line, ": ", what);
}
void Parser::fail(const std::string& what) const {
  fail_at(current().line, ErrorCode::kInvalidArgument, what);
}
void Parser::refuse(const std::string& what) const {
  fail_at(current().line, ErrorCode::kUnsupported, what);
}

std::string Parser::found() const {
  switch (current().kind) {
    case Kind::kTagEnd:
    case Kind::kOutputEnd: return "the end of the tag";
    case Kind::kText:
    case Kind::kTagBegin:
    case Kind::kOutputBegin:
    case Kind::kEnd: return "the end of the template";
    case Kind::kString: return "a string";
    default: return files::quote(current().text);
  }
}

Token Parser::take() {
  Token token = current();
  if (next_ + 1 < tokens_.size()) ++next_;
  return token;
}
bool Parser::skip_operator(std::string_view op) {
  const bool matches = at_operator(op);
  if (matches) take();
  return matches;
}
bool Parser::skip_word(std::string_view word) {
  const bool matches = at_word(word);
  if (matches) take();
  return matches;
}
void Parser::expect(Kind kind, const char* what) {
  if (!at(kind)) fail(std::string("expected ") + what + ", found " + found());
  take();
}
void Parser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail("expected " + files::quote(op) + ", found " + found());
}
void Parser::expect_word(std::string_view word) {
  if (!skip_word(word)) fail("expected " + files::quote(word) + ", found " + found());
}
std::string Parser::expect_name(const char* what) {
  if (!at(Kind::kName)) fail(std::string("expected ") + what + ", found " + found());
  return take().text;
}

}  // namespace heddle::chat_template
