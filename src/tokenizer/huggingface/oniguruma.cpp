// What Oniguruma and PCRE2 read alike stays; what they read differently is spelled out or refused.

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "heddle/core/error.h"

#include "files/printable.h"
#include "tokenizer/huggingface/pattern.h"

namespace heddle::tokenizer {
namespace {

// PCRE2's \s has U+180E, and lacks what is not ASCII unless all of its classes become Unicode's.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNoSpaces =
    R"(\x{0}-\x{8}\x{E}-\x{1F}\x{21}-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF})"
    R"(\x{200B}-\x{2027}\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";

constexpr std::array<std::string_view, 37> kCategories = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
    "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cn", "Co", "Cs"};
struct LongName {
  std::string_view name, pcre2;
};
// PCRE2 takes the bare name of a script for Script_Extensions.
constexpr LongName kLongNames[] = {{"Letter", "L"},
                                   {"Mark", "M"},
                                   {"Number", "N"},
                                   {"Punctuation", "P"},
                                   {"Symbol", "S"},
                                   {"Separator", "Z"},
                                   {"Han", "sc:Han"},
                                   {"Hiragana", "sc:Hiragana"},
                                   {"Katakana", "sc:Katakana"},
                                   {"Hangul", "sc:Hangul"},
                                   {"Latin", "sc:Latin"},
                                   {"Greek", "sc:Greek"},
                                   {"Cyrillic", "sc:Cyrillic"},
                                   {"Arabic", "sc:Arabic"},
                                   {"Hebrew", "sc:Hebrew"},
                                   {"Thai", "sc:Thai"},
                                   {"Devanagari", "sc:Devanagari"}};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Translator {
 public:
  Translator(std::string_view source, const std::string& where) : source_(source), where_(where) {}

  std::string run() {
    result_ = "(*LF)";  // what a dot and the end of a line mean
    while (at_ < source_.size()) translate_one();
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool sees(std::string_view text) const {
    return source_.substr(at_).starts_with(text);
  }
  void keep(size_t count) {
    result_ += source_.substr(at_, count);
    at_ += count;
  }
  [[noreturn]] void refuse(std::string_view what) const {
    throw_error(ErrorCode::kUnsupported, where_, " is ", files::quote(source_), ", and ",
                files::quote(what), " at its byte ", at_, " is not supported");
  }

  void translate_one();
  void open_group();
  void close_group();
  void quantify();
  void translate_interval();
  void translate_class();
  void translate_property();
  void translate_code_point(bool in_class);
  void translate_escape(bool in_class);
  void take_literal();

  [[nodiscard]] bool ignores_case() const { return !groups_.empty() && groups_.back(); }

  std::string_view source_;
  const std::string& where_;
  size_t at_ = 0;
  std::string result_;
  std::vector<bool> groups_;  // of those that are open, whether they ignore case
  char last_literal_ = 0;     // of a run of letters in which case is ignored
};

void Translator::translate_one() {
  const char c = source_[at_];
  if (!is_letter(c)) last_literal_ = 0;
  switch (c) {
    case '\\': return translate_escape(false);
    case '[': return translate_class();
    case '(': return open_group();
    case ')': return close_group();
    case '*':
    case '+':
    case '?': return quantify();
    case '{': return translate_interval();
    case '^': refuse("^");
    case '$':  // of a line
      result_ += R"((?=\n|\z))";
      ++at_;
      return;
    default: return take_literal();
  }
}

/// "ss" also finds "ß" where Oniguruma ignores case, and other such pairs their ligatures.
void Translator::take_literal() {
  if (ignores_case()) {
    if (static_cast<uint8_t>(source_[at_]) >= 0x80) refuse("(?i:");
    const char pair[2] = {last_literal_, static_cast<char>(source_[at_] | 0x20)};
    for (const std::string_view folded : {"ss", "st", "ff", "fi", "fl"}) {
      if (std::string_view(pair, 2) == folded) refuse(folded);
    }
    last_literal_ = pair[1];
  }
  keep(1);
}

void Translator::open_group() {
  bool ignores = ignores_case();
  if (sees("(?")) {
    std::string_view kind;
    for (const std::string_view known : {"(?:", "(?!", "(?=", "(?<!", "(?<=", "(?>", "(?i:"}) {
      if (sees(known)) kind = known;
    }
    if (kind.empty()) refuse(source_.substr(at_, 4));
    ignores = ignores || kind == "(?i:";
    keep(kind.size());
  } else if (sees("(*")) {
    refuse("(*");
  } else {
    keep(1);
  }
  groups_.push_back(ignores);
}

void Translator::close_group() {
  if (groups_.empty()) refuse(")");
  groups_.pop_back();
  keep(1);
}

/// "*", "+" or "?", maybe lazy ("*?") or possessive ("*+").
void Translator::quantify() {
  keep(1);
  if (sees("?") || sees("+")) keep(1);
  if (sees("*") || sees("+") || sees("?") || sees("{")) refuse(source_.substr(at_, 1));
}

/// "{2}", "{2,}" or "{2,3}". "{2}+" is a repetition of it for Oniguruma and possessive for PCRE2.
void Translator::translate_interval() {
  size_t end = at_ + 1;
  const size_t first = end;
  while (end < source_.size() && is_digit(source_[end])) ++end;
  const bool has_number = end > first && end - first < 6;
  if (end < source_.size() && source_[end] == ',') ++end;
  while (end < source_.size() && is_digit(source_[end])) ++end;
  if (!has_number || end >= source_.size() || source_[end] != '}') refuse("{");
  keep(end + 1 - at_);
  if (sees("*") || sees("+") || sees("?") || sees("{")) refuse("}" + std::string(1, source_[at_]));
}

void Translator::translate_class() {
  keep(sees("[^") ? 2 : 1);
  if (sees("]")) refuse("[]");
  while (at_ < source_.size() && source_[at_] != ']') {
    if (sees("[")) refuse("[ within [");
    if (sees("&&")) refuse("&&");
    if (ignores_case() && !is_letter(source_[at_])) refuse("(?i:");
    if (source_[at_] != '\\') {
      keep(1);
      continue;
    }
    const bool is_set = at_ + 1 < source_.size() &&
                        std::string_view("sSdDpP").find(source_[at_ + 1]) != std::string::npos;
    translate_escape(true);
    if (is_set && sees("-")) {  // no range: a set has no end
      result_ += R"(\-)";
      ++at_;
    }
  }
  if (at_ == source_.size()) refuse("[");
  keep(1);
}

/// \p{L}, \p{^L}, \P{Han}.
void Translator::translate_property() {
  const size_t end = source_.find('}', at_);
  if (end == source_.npos || at_ + 2 >= source_.size() || source_[at_ + 2] != '{') {
    refuse(source_.substr(at_, 3));
  }
  std::string_view name = source_.substr(at_ + 3, end - at_ - 3);
  bool negated = source_[at_ + 1] == 'P';
  if (name.starts_with('^')) {
    negated = !negated;
    name.remove_prefix(1);
  }
  std::string_view known;
  for (const std::string_view category : kCategories) {
    if (category == name) known = category;
  }
  for (const LongName& other : kLongNames) {
    if (other.name == name) known = other.pcre2;
  }
  if (known.empty() || ignores_case()) refuse(source_.substr(at_, end + 1 - at_));
  result_ += negated ? R"(\P{)" : R"(\p{)";
  (result_ += known) += '}';
  at_ = end + 1;
}

/// \x{30A2} or \u30A2, and \x41 below 80, where a byte is a character.
void Translator::translate_code_point(bool in_class) {
  size_t begin = at_ + 2, end = begin, last;
  const bool braces = begin < source_.size() && source_[begin] == '{' && source_[at_ + 1] == 'x';
  if (braces) end = ++begin;
  const size_t longest = braces ? 8 : source_[at_ + 1] == 'x' ? 2 : 4;
  uint32_t value = 0;
  for (; end < source_.size() && end - begin < longest; ++end) {
    const char c = source_[end];
    const bool letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (!letter && !is_digit(c)) break;
    value = value * 16 + static_cast<uint32_t>(letter ? (c | 0x20) - 'a' + 10 : c - '0');
  }
  last = end;
  if (braces && end < source_.size() && source_[end] == '}') ++last;
  const bool complete = braces ? last > end && end > begin : end - begin == longest;
  const bool is_byte = source_[at_ + 1] == 'x' && !braces && value >= 0x80;
  if (!complete || is_byte || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000) ||
      (ignores_case() && !in_class)) {
    refuse(source_.substr(at_, last - at_));
  }
  constexpr char kDigits[] = "0123456789ABCDEF";
  result_ += R"(\x{)";
  for (int shift = 20; shift >= 0; shift -= 4) result_ += kDigits[value >> shift & 15];
  result_ += '}';
  at_ = last;
}

void Translator::translate_escape(bool in_class) {
  if (at_ + 1 == source_.size()) refuse("\\");
  const char c = source_[at_ + 1];
  const auto put_set = [&](std::string_view ranges) {
    ((result_ += in_class ? "" : "[") += ranges) += in_class ? "" : "]";
    at_ += 2;
  };
  switch (c) {
    case 's': return put_set(kSpaces);
    case 'S': return put_set(kNoSpaces);
    case 'd': return put_set(R"(\p{Nd})");
    case 'D': return put_set(R"(\P{Nd})");
    case 'p':
    case 'P': return translate_property();
    case 'x':
    case 'u': return translate_code_point(in_class);
    case 'r':
    case 'n':
    case 't':
    case 'f': return keep(2);
    default: break;
  }
  if (is_letter(c) || is_digit(c) || static_cast<uint8_t>(c) >= 0x80) {
    refuse(source_.substr(at_, 2));
  }
  keep(2);
}

}  // namespace

std::string to_pcre2(std::string_view expression, const std::string& where) {
  return Translator(expression, where).run();
}

}  // namespace heddle::tokenizer
