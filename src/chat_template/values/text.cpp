#include "chat_template/values/text.h"

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

bool contains(std::string_view set, std::string_view character) {
  for (size_t pos = 0; pos < set.size();) {
    const size_t start = pos;
    next_code_point(set, pos);
    if (set.substr(start, pos - start) == character) return true;
  }
  return false;
}

bool is_stripped(std::string_view character, std::optional<std::string_view> chars) {
  if (chars) return contains(*chars, character);
  size_t pos = 0;
  return is_space(next_code_point(character, pos));
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

std::u32string to_utf32(std::string_view s) {
  std::u32string result;
  result.reserve(s.size());
  for (size_t pos = 0; pos < s.size();) result += next_code_point(s, pos);
  return result;
}

std::string to_utf8(std::u32string_view s) {
  std::string result;
  result.reserve(s.size());
  for (const char32_t c : s) append_code_point(result, c);
  return result;
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

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::string_view strip_left(std::string_view s, std::optional<std::string_view> chars) {
  size_t pos = 0;
  while (pos < s.size()) {
    size_t end = pos;
    next_code_point(s, end);
    if (!is_stripped(s.substr(pos, end - pos), chars)) break;
    pos = end;
  }
  return s.substr(pos);
}

std::string_view strip_right(std::string_view s, std::optional<std::string_view> chars) {
  while (!s.empty()) {
    size_t start = s.size() - 1;
    while (is_continuation(s[start])) --start;
    if (!is_stripped(s.substr(start), chars)) break;
    s = s.substr(0, start);
  }
  return s;
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

Pieces split(std::string_view s, std::optional<std::string_view> separator, int64_t limit) {
  Pieces pieces;
  if (separator) {
    size_t pos = 0;
    for (; limit != 0; --limit) {
      const size_t at = find(s, *separator, pos);
      if (at == std::string_view::npos) break;
      pieces.push_back(s.substr(pos, at - pos));
      pos = at + separator->size();
    }
    pieces.push_back(s.substr(pos));
    return pieces;
  }
  for (s = strip_left(s); !s.empty(); s = strip_left(s)) {
    if (limit-- == 0) {
      pieces.push_back(s);
      break;
    }
    size_t end = 0, next = 0;
    while (next < s.size() && !is_space(next_code_point(s, next))) end = next;
    pieces.push_back(s.substr(0, end));
    s.remove_prefix(end);
  }
  return pieces;
}

Pieces split_right(std::string_view s, std::optional<std::string_view> separator, int64_t limit) {
  Pieces reversed;
  if (separator) {
    for (; limit != 0; --limit) {
      const size_t at = s.rfind(*separator);
      if (at == std::string_view::npos) break;
      reversed.push_back(s.substr(at + separator->size()));
      s = s.substr(0, at);
    }
    reversed.push_back(s);
  } else {
    for (s = strip_right(s); !s.empty(); s = strip_right(s)) {
      if (limit-- == 0) {
        reversed.push_back(s);
        break;
      }
      size_t start = s.size();
      while (start > 0) {
        size_t previous = start - 1;
        while (is_continuation(s[previous])) --previous;
        size_t pos = previous;
        if (is_space(next_code_point(s, pos))) break;
        start = previous;
      }
      reversed.push_back(s.substr(start));
      s = s.substr(0, start);
    }
  }
  return Pieces(reversed.rbegin(), reversed.rend());
}

Pieces split_lines(std::string_view s, bool keep_ends) {
  Pieces lines;
  size_t start = 0;
  for (size_t pos = 0; pos < s.size();) {
    const size_t end = pos;
    const char32_t c = next_code_point(s, pos);
    if (!is_line_end(c)) continue;
    if (c == '\r' && pos < s.size() && s[pos] == '\n') ++pos;
    lines.push_back(s.substr(start, (keep_ends ? pos : end) - start));
    start = pos;
  }
  if (start < s.size()) lines.push_back(s.substr(start));
  return lines;
}

}  // namespace heddle::chat_template::text
