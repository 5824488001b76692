// Reads regular expressions, in time in proportion to them.
#include <algorithm>
#include <optional>
#include <utility>

#include "engine/rules/schema/text_pattern.h"

namespace heddle::grammar {
namespace {

using Kind = TextPattern::Kind;

constexpr int kMaxGroupDepth = 50;  // of groups
constexpr int64_t kMaxRepeat = 1'000'000;
constexpr int kMaxParts = 20'000;  // as many rules as a grammar has
/// Of what is repeated and may be empty: without its empty text it has many more.
constexpr int kMaxEmptyParts = 200;

// Those that every library counts in, and those that any does.
const CharSet kDigits({{'0', '9'}});
const CharSet kWord({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
const CharSet kBlanks({{'\t', '\r'}, {' ', ' '}});
const CharSet kAnyBlanks({{'\t', '\r'},
                          {0x1C, ' '},
                          {0x85, 0x85},
                          {0xA0, 0xA0},
                          {0x1680, 0x1680},
                          {0x180E, 0x180E},
                          {0x2000, 0x200A},
                          {0x2028, 0x2029},
                          {0x202F, 0x202F},
                          {0x205F, 0x205F},
                          {0x3000, 0x3000},
                          {0xFEFF, 0xFEFF}});
const CharSet kAscii({{0, 0x7F}});
const CharSet kLineEnds({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});

/// A set as all libraries have it, and what any of them counts in where it is not the same.
struct ClassPart {
  CharSet set{};
  CharSet widest{};
};

ClassPart exactly(CharSet set) { return {set, set}; }

/// \d, \w, \s and their opposites, of which Python's take in other alphabets.
std::optional<ClassPart> named_class(uint32_t letter) {
  const CharSet beyond = kAscii.complement();
  switch (letter) {
    case 'd': return ClassPart{kDigits, kDigits.with(beyond)};
    case 'D': return ClassPart{kAscii.without(kDigits), kDigits.complement()};
    case 'w': return ClassPart{kWord, kWord.with(beyond)};
    case 'W': return ClassPart{kAscii.without(kWord), kWord.complement()};
    case 's': return ClassPart{kBlanks, kAnyBlanks};
    case 'S': return ClassPart{kAnyBlanks.complement(), kBlanks.complement()};
    default: return std::nullopt;
  }
}

class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : text_(characters_of(text)) {}

  TextPattern parse() {
    TextPattern result = alternatives(0);
    if (!at_end()) fail("a ')' without '('");
    return result;
  }

 private:
  [[noreturn]] static void fail(const char* what) { throw PatternFault(what); }
  [[nodiscard]] bool at_end() const { return next_ == text_.size(); }
  [[nodiscard]] uint32_t peek(size_t ahead = 0) const {
    return next_ + ahead < text_.size() ? text_[next_ + ahead] : 0;
  }
  bool take(char expected) {
    if (at_end() || text_[next_] != static_cast<uint32_t>(expected)) return false;
    ++next_;
    return true;
  }

  TextPattern alternatives(int depth) {
    if (depth > kMaxGroupDepth) fail("groups nested too deeply");
    TextPattern result{.kind = Kind::kAlternatives};
    do {
      result.parts.push_back(depth == 0 ? anchored() : sequence(depth));
    } while (take('|'));
    return result.parts.size() == 1 ? TextPattern(std::move(result.parts.front())) : result;
  }

  /// An alternative of the whole pattern: without ^ or $ other text may stand there.
  TextPattern anchored() {
    std::vector<TextPattern> parts;
    if (!take('^')) parts.push_back(repeat_of(one_of(CharSet::all()), 0, TextPattern::kNoEnd));
    TextPattern middle = sequence(0);
    if (middle.kind == Kind::kSequence) {
      std::ranges::move(middle.parts, std::back_inserter(parts));
    } else {
      parts.push_back(std::move(middle));
    }
    if (!take('$')) parts.push_back(repeat_of(one_of(CharSet::all()), 0, TextPattern::kNoEnd));
    if (!at_end() && peek() != '|' && peek() != ')') fail("a '$' that is not at its end");
    return sequence_of(std::move(parts));
  }

  TextPattern sequence(int depth) {
    std::vector<TextPattern> parts;
    while (!at_end() && peek() != '|' && peek() != ')') {
      if (peek() == '^') fail("a '^' that is not at its beginning");
      if (peek() == '$') {
        if (depth > 0) fail("a '$' in a group");
        break;
      }
      const int num_before = num_parts_;
      if (++num_parts_ > kMaxParts) fail("too many parts");
      TextPattern part = atom(depth);
      parts.push_back(quantified(std::move(part), num_before));
    }
    return sequence_of(std::move(parts));
  }

  TextPattern atom(int depth) {
    if (take('(')) return group(depth);
    if (take('[')) return one_of(char_class());
    if (take('.')) return one_of(kLineEnds.complement());
    if (take('\\')) {
      if (const auto named = named_class(peek())) {
        ++next_;
        return one_of(named->set);
      }
      const uint32_t character = escape();
      return one_of(CharSet({{character, character}}));
    }
    const uint32_t character = peek();
    if (character == '*' || character == '+' || character == '?' || character == '{') {
      fail("a quantifier of nothing");
    }
    ++next_;
    return one_of(CharSet({{character, character}}));
  }

  TextPattern group(int depth) {
    if (take('?')) {
      if (!take(':')) group_name();
    }
    TextPattern result = alternatives(depth + 1);
    if (!take(')')) fail("a '(' without ')'");
    return result;
  }

  void group_name() {
    (void)take('P');
    if (!take('<') || peek() == '=' || peek() == '!') {
      fail("a group other than (...), (?:...) and (?<name>...)");
    }
    while (!at_end() && kWord.has(peek())) ++next_;
    if (!take('>')) fail("a name of a group without '>'");
  }

  TextPattern quantified(TextPattern part, int num_before) {
    int64_t min = 0, max = TextPattern::kNoEnd;
    if (take('*')) {
    } else if (take('+')) {
      min = 1;
    } else if (take('?')) {
      max = 1;
    } else if (take('{')) {
      min = max = number();
      if (take(',')) max = peek() == '}' ? TextPattern::kNoEnd : number();
      if (!take('}')) fail("a '{' that begins no quantifier");
      if (min > max) fail("a quantifier whose bounds are the wrong way round");
    } else {
      return part;
    }
    if (part.shortest() == 0 && num_parts_ - num_before > kMaxEmptyParts) {
      fail("a repeat of too many parts that may be empty");
    }
    (void)take('?');  // lazy: the texts are the same
    if (!at_end() && (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{')) {
      fail("a quantifier of a quantifier");
    }
    return repeat_of(std::move(part), min, max);
  }

  int64_t number() {
    int64_t value = 0;
    const size_t begin = next_;
    while (!at_end() && kDigits.has(peek())) {
      value = value * 10 + (peek() - '0');
      if (value > kMaxRepeat) fail("a quantifier above 1000000");
      ++next_;
    }
    if (next_ == begin) fail("a '{' that begins no quantifier");
    return value;
  }

  /// What follows a backslash, if it is one character.
  uint32_t escape() {
    if (at_end()) fail("a '\\' at its end");
    const uint32_t letter = text_[next_++];
    switch (letter) {
      case 't': return '\t';
      case 'n': return '\n';
      case 'r': return '\r';
      case 'f': return '\f';
      case 'v': return '\v';
      case 'x': return hex(2);
      case 'u': return hex(4);
      case '0':
        if (!kDigits.has(peek())) return 0;
        break;
      default: break;
    }
    const bool is_sign = letter < 0x80 && letter > ' ' && !kWord.has(letter);
    if (!is_sign && letter != ' ') fail("an escape that is not supported");
    return letter;
  }

  uint32_t hex(int num_digits) {
    uint32_t value = 0;
    for (int i = 0; i < num_digits; ++i) {
      const uint32_t c = peek();
      const bool is_digit = c >= '0' && c <= '9', is_lower = c >= 'a' && c <= 'f';
      if (!is_digit && !is_lower && !(c >= 'A' && c <= 'F')) fail("an escape that is not whole");
      value = value * 16 + (is_digit ? c - '0' : (c | 0x20) - 'a' + 10);
      ++next_;
    }
    if (!CharSet::all().has(value)) fail("a surrogate");
    return value;
  }

  CharSet char_class() {
    const bool is_negated = take('^');
    if (peek() == ']') fail("a class that begins with ']'");
    ClassPart all;
    while (!take(']')) {
      if (at_end()) fail("a '[' without ']'");
      const ClassPart part = class_part();
      all = {all.set.with(part.set), all.widest.with(part.widest)};
    }
    CharSet result = is_negated ? all.widest.complement() : all.set;
    if (result.empty()) fail("a class of no characters");
    return result;
  }

  ClassPart class_part() {
    const bool is_escape = take('\\');
    if (is_escape) {
      if (auto named = named_class(peek())) {
        ++next_;
        if (peek() == '-' && peek(1) != ']') fail("a range that begins with a class");
        return *named;
      }
    }
    const uint32_t first = class_character(is_escape);
    if (peek() != '-' || peek(1) == ']') return exactly(CharSet({{first, first}}));
    ++next_;
    const bool is_last_escape = take('\\');
    if (is_last_escape && named_class(peek())) fail("a range that ends with a class");
    const uint32_t last = class_character(is_last_escape);
    if (first > last) fail("a range whose ends are the wrong way round");
    return exactly(CharSet({{first, last}}).within(CharSet::all()));
  }

  uint32_t class_character(bool is_escape) {
    if (at_end()) fail("a '[' without ']'");
    if (!is_escape) return text_[next_++];
    return take('b') ? '\b' : escape();
  }

  std::vector<uint32_t> text_;
  size_t next_ = 0;
  int num_parts_ = 0;
};

}  // namespace

TextPattern parse_pattern(std::string_view text) { return PatternParser(text).parse(); }

}  // namespace heddle::grammar
