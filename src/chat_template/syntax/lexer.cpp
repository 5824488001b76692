#include "chat_template/syntax/lexer.h"

#include <algorithm>

#include "heddle/core/error.h"

#include "chat_template/syntax/literal.h"
#include "chat_template/values/text.h"
#include "files/printable.h"

namespace heddle::chat_template {
namespace {

constexpr size_t kNone = std::string_view::npos;

/// One newline form, and without the newline that ends the file.
std::string normalize(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    result += source[i] == '\r' ? '\n' : source[i];
  }
  if (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name(char c) { return is_name_start(c) || is_digit(c); }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (pos_ < source_.size()) read_text();
    add(Token::Kind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw_error(ErrorCode::kInvalidArgument, "line ", line_, ": ", what);
  }
  void add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, line_, std::move(text)});
  }
  [[nodiscard]] char peek(size_t ahead = 0) const {
    return pos_ + ahead < source_.size() ? source_[pos_ + ahead] : '\0';
  }
  [[nodiscard]] bool at(std::string_view what) const {
    return source_.substr(pos_, what.size()) == what;
  }
  void advance_to(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(pos_),
                                         source_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    if (end > pos_) line_starting_ = source_[end - 1] == '\n';
    pos_ = end;
  }
  void advance(size_t count) { advance_to(pos_ + count); }
  void skip_space() {
    const std::string_view rest = source_.substr(pos_);
    advance(rest.size() - text::strip_left(rest).size());
  }
  [[nodiscard]] size_t space_end(size_t from) const {
    return source_.size() - text::strip_left(source_.substr(from)).size();
  }

  void read_text();
  void add_text(std::string_view text, char sign, bool strip_line);
  void skip_comment();
  bool read_raw();
  void read_tag(std::string_view end, Token::Kind end_kind);
  bool read_end(std::string_view end, Token::Kind kind);
  void read_number();
  void read_string();
  void read_operator();

  std::string_view source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the character before pos_ ends a line, or there is none
  std::string open_;           // closing brackets that are due inside the tag
  std::vector<Token> tokens_;
};

/// Text up to the next tag, then the tag.
void Lexer::read_text() {
  size_t open = pos_;
  do {
    open = source_.find('{', open);
  } while (
      open != kNone &&
      (open + 1 == source_.size() || std::string_view("{%#").find(source_[open + 1]) == kNone) &&
      ++open);
  if (open == kNone) {
    add(Token::Kind::kText, std::string(source_.substr(pos_)));
    advance_to(source_.size());
    return;
  }
  const char kind = source_[open + 1];
  const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
  const bool has_sign = sign == '-' || sign == '+';
  add_text(source_.substr(pos_, open - pos_), sign, kind != '{');
  advance_to(open);
  if (kind == '%' && read_raw()) return;
  const Token::Kind begin = kind == '{' ? Token::Kind::kOutputBegin : Token::Kind::kTagBegin;
  if (kind != '#') add(begin, {});
  advance(has_sign ? 3 : 2);
  if (kind == '#') return skip_comment();
  if (kind == '{') return read_tag("}}", Token::Kind::kOutputEnd);
  read_tag("%}", Token::Kind::kTagEnd);
}

/// The text before a tag: '-' in the tag takes all white space before it, otherwise a tag that is
/// no output takes the blanks between the line's start and itself, unless '+' forbids it.
void Lexer::add_text(std::string_view text, char sign, bool strip_line) {
  if (sign == '-') {
    text = text::strip_right(text);
  } else if (sign != '+' && strip_line) {
    const size_t line = text.rfind('\n') + 1;  // 0 where there is no newline
    if ((line > 0 || line_starting_) && text::strip_left(text.substr(line)).empty()) {
      text = text.substr(0, line);
    }
  }
  if (!text.empty()) add(Token::Kind::kText, std::string(text));
}

void Lexer::skip_comment() {
  const size_t close = source_.find("#}", pos_);
  if (close == kNone) fail("a comment has no end");
  const char sign = close > pos_ ? source_[close - 1] : '\0';
  advance_to(close + 2);
  if (sign == '-') {
    skip_space();
  } else if (sign != '+' && peek() == '\n') {
    advance(1);
  }
}

/// A raw block, if one starts here: its text goes out as it is.
bool Lexer::read_raw() {
  const auto match_word = [&](size_t from,
                              std::string_view word) {  // the end of "{%- word", or none
    size_t p = from + 2;
    if (p < source_.size() && (source_[p] == '-' || source_[p] == '+')) ++p;
    p = space_end(std::min(p, source_.size()));
    if (source_.substr(p, word.size()) != word) return kNone;
    return space_end(p + word.size());
  };
  const size_t begin = match_word(pos_, "raw");
  if (begin == kNone) return false;
  if (source_.substr(begin, 3) == "-%}") {
    advance_to(begin + 3);
    skip_space();
  } else if (source_.substr(begin, 2) == "%}") {
    advance_to(begin + 2);
  } else {
    return false;
  }
  for (size_t tag = pos_; (tag = source_.find("{%", tag)) != kNone; tag += 2) {
    const size_t close = match_word(tag, "endraw");
    if (close == kNone) continue;
    const size_t sign = close < source_.size() && (source_[close] == '-' || source_[close] == '+');
    if (source_.substr(close + sign, 2) != "%}") continue;
    add_text(source_.substr(pos_, tag - pos_), source_[tag + 2], true);
    const char end_sign = sign != 0 ? source_[close] : '\0';
    advance_to(close + sign + 2);
    if (end_sign == '-') skip_space();
    if (end_sign == '\0' && peek() == '\n') advance(1);
    return true;
  }
  fail("a raw block has no end");
}

void Lexer::read_tag(std::string_view end, Token::Kind end_kind) {
  open_.clear();
  while (pos_ < source_.size()) {
    if (open_.empty() && read_end(end, end_kind)) return;
    if (space_end(pos_) != pos_) {
      skip_space();
    } else if (is_digit(peek())) {
      read_number();
    } else if (is_name_start(peek())) {
      size_t stop = pos_;
      while (stop < source_.size() && is_name(source_[stop])) ++stop;
      add(Token::Kind::kName, std::string(source_.substr(pos_, stop - pos_)));
      advance_to(stop);
    } else if (peek() == '\'' || peek() == '"') {
      read_string();
    } else {
      read_operator();
    }
  }
  fail("a tag has no end");
}

bool Lexer::read_end(std::string_view end, Token::Kind kind) {
  const bool is_tag = kind == Token::Kind::kTagEnd;
  const bool signed_end =
      (peek() == '-' || (peek() == '+' && is_tag)) && source_.substr(pos_ + 1, end.size()) == end;
  if (!signed_end && !at(end)) return false;
  const char sign = signed_end ? peek() : '\0';
  add(kind, {});
  advance(end.size() + (signed_end ? 1 : 0));
  if (sign == '-') skip_space();
  if (sign == '\0' && is_tag && peek() == '\n') advance(1);  // trim_blocks
  return true;
}

void Lexer::read_number() {
  const NumberLiteral number = scan_number(source_, pos_);
  std::string digits(source_.substr(pos_, number.end - pos_));
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  add(number.is_float ? Token::Kind::kFloat : Token::Kind::kInteger, std::move(digits));
  advance_to(number.end);
}

void Lexer::read_string() {
  const char quote = peek();
  size_t end = pos_ + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) fail("a string has no end");
  try {
    add(Token::Kind::kString, unescape_string(source_.substr(pos_ + 1, end - pos_ - 1)));
  } catch (const Error& error) {
    throw_error(error.code(), "line ", line_, ": ", error.what());
  }
  advance_to(end + 1);
}

void Lexer::read_operator() {
  static constexpr std::string_view kOperators[] = {
      "//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~", "[",
      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
  for (const std::string_view op : kOperators) {
    if (!at(op)) continue;
    if (op == "(") open_ += ')';
    if (op == "[") open_ += ']';
    if (op == "{") open_ += '}';
    if (op == ")" || op == "]" || op == "}") {
      if (open_.empty() || open_.back() != op[0]) fail("unexpected " + files::quote(op));
      open_.pop_back();
    }
    add(Token::Kind::kOperator, std::string(op));
    return advance(op.size());
  }
  size_t stop = pos_;
  text::next_code_point(source_, stop);
  fail("unexpected character " + files::quote(source_.substr(pos_, stop - pos_)) + " in a tag");
}

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (!text::is_utf8(source)) {
    throw_error(ErrorCode::kInvalidArgument, "line 1: the template is not UTF-8");
  }
  const std::string normalized = normalize(source);
  return Lexer(normalized).run();
}

}  // namespace heddle::chat_template
