#include "chat_template/values/text.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace heddle::chat_template::text {
namespace {

constexpr char32_t kInvalid = 0xFFFFFFFF;

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// Reads one code point of text that need not be valid; kInvalid where it is not.
char32_t decode(std::string_view s, size_t& pos) {
  const auto lead = static_cast<unsigned char>(s[pos++]);
  if (lead < 0x80) return lead;
  const int extra = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  if (lead < 0xC2 || lead > 0xF4) return kInvalid;
  char32_t c = lead & (0x3Fu >> extra);
  for (int i = 0; i < extra; ++i, ++pos) {
    if (pos >= s.size() || !is_continuation(s[pos])) return kInvalid;
    c = (c << 6) | (static_cast<unsigned char>(s[pos]) & 0x3F);
  }
  const bool overlong = (extra == 2 && c < 0x800) || (extra == 3 && c < 0x10000);
  return overlong || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000) ? kInvalid : c;
}

/// What strip() takes away. A look costs the same however many characters there are.
class CharacterSet {
 public:
  explicit CharacterSet(std::string_view characters) {
    for (size_t pos = 0; pos < characters.size();) {
      const char32_t c = next_code_point(characters, pos);
      c < ascii_.size() ? void(ascii_[c] = true) : void(others_ += c);
    }
    std::sort(others_.begin(), others_.end());
  }
  [[nodiscard]] bool contains(char32_t c) const {
    return c < ascii_.size() ? ascii_[c] : std::binary_search(others_.begin(), others_.end(), c);
  }

 private:
  std::array<bool, 128> ascii_{};
  std::u32string others_;  // sorted
};

template <class IsStripped>
std::string_view strip_left_if(std::string_view s, const IsStripped& is_stripped) {
  for (size_t pos = 0; pos < s.size();) {
    const size_t start = pos;
    if (!is_stripped(next_code_point(s, pos))) return s.substr(start);
  }
  return {};
}
template <class IsStripped>
std::string_view strip_right_if(std::string_view s, const IsStripped& is_stripped) {
  for (size_t pos = s.size(); pos > 0;) {
    const size_t end = pos;
    if (!is_stripped(previous_code_point(s, pos))) return s.substr(0, end);
  }
  return {};
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

bool is_utf8(std::string_view s) {
  for (size_t pos = 0; pos < s.size();) {
    if (decode(s, pos) == kInvalid) return false;
  }
  return true;
}

char32_t next_code_point(std::string_view s, size_t& pos) { return decode(s, pos); }

char32_t previous_code_point(std::string_view s, size_t& pos) {
  do --pos;
  while (is_continuation(s[pos]));
  size_t end = pos;
  return next_code_point(s, end);
}

void append_code_point(std::string& s, char32_t c) {
  const auto tail = [&](int shift) { s += static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    s += static_cast<char>(c);
  } else if (c < 0x800) {
    s += static_cast<char>(0xC0 | (c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    s += static_cast<char>(0xE0 | (c >> 12));
    tail(6);
    tail(0);
  } else {
    s += static_cast<char>(0xF0 | (c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

size_t length(std::string_view s) {
  size_t count = 0;
  for (const char byte : s) count += is_continuation(byte) ? 0 : 1;
  return count;
}

size_t byte_offset(std::string_view s, size_t index) {
  size_t pos = 0;
  for (; pos < s.size(); ++pos) {
    if (!is_continuation(s[pos]) && index-- == 0) return pos;
  }
  return pos;
}

std::string slice(std::string_view s, size_t first, int64_t step, size_t count) {
  std::string result;
  size_t pos = byte_offset(s, first);
  for (size_t i = 0; i < count; ++i) {
    size_t end = pos;
    next_code_point(s, end);
    result += s.substr(pos, end - pos);
    if (i + 1 == count) break;
    for (int64_t j = 0; j < step; ++j) next_code_point(s, pos);
    for (int64_t j = 0; j > step; --j) previous_code_point(s, pos);
  }
  return result;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::string_view strip_left(std::string_view s, std::optional<std::string_view> chars) {
  if (!chars) return strip_left_if(s, is_space);
  return strip_left_if(s, [set = CharacterSet(*chars)](char32_t c) { return set.contains(c); });
}

std::string_view strip_right(std::string_view s, std::optional<std::string_view> chars) {
  if (!chars) return strip_right_if(s, is_space);
  return strip_right_if(s, [set = CharacterSet(*chars)](char32_t c) { return set.contains(c); });
}

size_t find(std::string_view s, std::string_view needle, size_t from) {
  if (from > s.size() || needle.size() > s.size() - from) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* at = memmem(s.data() + from, s.size() - from, needle.data(), needle.size());
  return at == nullptr ? std::string_view::npos
                       : static_cast<size_t>(static_cast<const char*>(at) - s.data());
}

size_t count(std::string_view s, std::string_view needle) {
  if (needle.empty()) return length(s) + 1;
  size_t result = 0;
  for (size_t pos = 0; (pos = find(s, needle, pos)) != std::string_view::npos;
       pos += needle.size()) {
    ++result;
  }
  return result;
}

std::string replace(std::string_view s, std::string_view from, std::string_view to, int64_t limit) {
  std::string result;
  size_t pos = 0;
  for (; limit != 0; --limit) {
    const size_t at = find(s, from, pos);
    if (at == std::string_view::npos) break;
    result.append(s.substr(pos, at - pos)).append(to);
    pos = at + from.size();
    if (!from.empty()) continue;
    if (pos == s.size()) break;  // an empty pattern stands before every character and at the end
    const size_t start = pos;
    next_code_point(s, pos);
    result.append(s.substr(start, pos - start));
  }
  return result.append(s.substr(pos));
}

namespace {

void add_piece(Budget& budget, Pieces& pieces, std::string_view piece) {
  budget.spend_bytes(sizeof piece);
  pieces.push_back(piece);
}

Pieces split_at_space(Budget& budget, std::string_view s, int64_t limit) {
  Pieces pieces;
  for (s = strip_left(s); !s.empty(); s = strip_left(s)) {
    if (limit-- == 0) {
      add_piece(budget, pieces, s);
      break;
    }
    size_t end = 0, next = 0;
    while (next < s.size() && !is_space(next_code_point(s, next))) end = next;
    add_piece(budget, pieces, s.substr(0, end));
    s.remove_prefix(end);
  }
  return pieces;
}

/// Pieces from the last to the first.
Pieces split_at_space_right(Budget& budget, std::string_view s, int64_t limit) {
  Pieces reversed;
  for (s = strip_right(s); !s.empty(); s = strip_right(s)) {
    if (limit-- == 0) {
      add_piece(budget, reversed, s);
      break;
    }
    size_t start = s.size(), before = s.size();
    while (before > 0 && !is_space(previous_code_point(s, before))) start = before;
    add_piece(budget, reversed, s.substr(start));
    s = s.substr(0, start);
  }
  return reversed;
}

}  // namespace

Pieces split(Budget& budget, std::string_view s, std::optional<std::string_view> separator,
             int64_t limit) {
  if (!separator) return split_at_space(budget, s, limit);
  Pieces pieces;
  size_t pos = 0;
  for (; limit != 0; --limit) {
    const size_t at = find(s, *separator, pos);
    if (at == std::string_view::npos) break;
    add_piece(budget, pieces, s.substr(pos, at - pos));
    pos = at + separator->size();
  }
  add_piece(budget, pieces, s.substr(pos));
  return pieces;
}

Pieces split_right(Budget& budget, std::string_view s, std::optional<std::string_view> separator,
                   int64_t limit) {
  Pieces reversed;
  if (separator) {
    // Both backwards, because only a search from the left takes a time linear in s.
    budget.spend_bytes(s.size() + separator->size());
    const std::string reversed_s(s.rbegin(), s.rend());
    const std::string reversed_separator(separator->rbegin(), separator->rend());
    const std::string_view text = reversed_s, needle = reversed_separator;
    size_t pos = 0;
    for (; limit != 0; --limit) {
      const size_t at = find(text, needle, pos);
      if (at == std::string_view::npos) break;
      add_piece(budget, reversed, s.substr(s.size() - at, at - pos));
      pos = at + needle.size();
    }
    add_piece(budget, reversed, s.substr(0, s.size() - pos));
  } else {
    reversed = split_at_space_right(budget, s, limit);
  }
  std::reverse(reversed.begin(), reversed.end());
  return reversed;
}

Pieces split_lines(Budget& budget, std::string_view s, bool keep_ends) {
  Pieces lines;
  size_t start = 0;
  for (size_t pos = 0; pos < s.size();) {
    const size_t end = pos;
    const char32_t c = next_code_point(s, pos);
    if (!is_line_end(c)) continue;
    if (c == '\r' && pos < s.size() && s[pos] == '\n') ++pos;
    add_piece(budget, lines, s.substr(start, (keep_ends ? pos : end) - start));
    start = pos;
  }
  if (start < s.size()) add_piece(budget, lines, s.substr(start));
  return lines;
}

}  // namespace heddle::chat_template::text
