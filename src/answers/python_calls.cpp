#include "answers/python_calls.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "answers/json_scanner.h"

namespace heddle::answers {
namespace {

constexpr size_t kMaxNesting = 64;

bool is_name_byte(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= '0' && byte <= '9') || byte == '_' || byte == '.' || byte == '-';
}

void append_utf8(std::string& text, uint32_t code) {
  const auto add = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    append_escaped(text, static_cast<char>(code));
  } else if (code < 0x800) {
    add(0xc0 | code >> 6);
    add(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3f));
    add(0x80 | (code & 0x3f));
  } else {
    add(0xf0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3f));
    add(0x80 | (code >> 6 & 0x3f));
    add(0x80 | (code & 0x3f));
  }
}

/// Reads a text from its beginning on. Each function returns false where what it reads is not
/// there; nothing that is read after that counts.
class PythonText {
 public:
  explicit PythonText(std::string_view text) : text_(text) {}

  [[nodiscard]] bool at_end() {
    skip_space();
    return at_ == text_.size();
  }
  [[nodiscard]] bool take(char byte) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != byte) return false;
    ++at_;
    return true;
  }
  [[nodiscard]] bool call(PythonCall& call) {
    skip_space();
    call.name = name();
    if (call.name.empty() || !take('(')) return false;
    call.arguments = "{";
    while (!take(')')) {
      if (call.arguments.size() > 1) {
        if (!take(',')) return false;
        if (take(')')) break;
        call.arguments += ", ";
      }
      skip_space();
      const std::string key = name();
      if (key.empty() || !take('=')) return false;
      call.arguments += escaped_string(key) + ": ";
      if (!value(call.arguments)) return false;
    }
    call.arguments.push_back('}');
    return true;
  }
  /// A literal, with what is in it, without recursion.
  [[nodiscard]] bool value(std::string& json) {
    std::string open;  // the brackets that close what is open, as JSON has them
    while (true) {
      skip_space();
      if (at_ == text_.size()) return false;
      const size_t bracket = std::string_view("[({").find(text_[at_]);
      if (bracket == std::string_view::npos) {
        if (!scalar(json)) return false;
      } else {
        if (open.size() == kMaxNesting) return false;
        open.push_back("])}"[bracket]);
        json.push_back(text_[at_++] == '{' ? '{' : '[');
        if (!take(open.back())) {
          if (open.back() == '}' && !key(json)) return false;
          continue;
        }
        json.push_back(open.back() == '}' ? '}' : ']');
        open.pop_back();
      }
      if (!close_or_go_on(json, open)) return false;
      if (open.empty()) return true;
    }
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  [[nodiscard]] std::string name() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name_byte(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  /// After a value: closes what ends here, up to a comma and what stands before the next value.
  [[nodiscard]] bool close_or_go_on(std::string& json, std::string& open) {
    while (!open.empty()) {
      const bool has_comma = take(',');
      if (take(open.back())) {
        json.push_back(open.back() == '}' ? '}' : ']');
        open.pop_back();
        continue;
      }
      if (!has_comma) return false;
      json += ", ";
      return open.back() != '}' || key(json);
    }
    return true;
  }
  [[nodiscard]] bool key(std::string& json) {
    skip_space();
    const bool is_text = at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'');
    if (!is_text || !string(json) || !take(':')) return false;
    json += ": ";
    return true;
  }
  [[nodiscard]] bool scalar(std::string& json) {
    if (text_[at_] == '"' || text_[at_] == '\'') return string(json);
    constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kWords = {
        {{"True", "true"},
         {"False", "false"},
         {"None", "null"},
         {"true", "true"},
         {"false", "false"},
         {"null", "null"}}};
    const size_t begin = at_;
    while (at_ < text_.size() && (is_name_byte(text_[at_]) || text_[at_] == '+')) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    for (const auto& [python, as_json] : kWords) {
      if (word != python) continue;
      json += as_json;
      return true;
    }
    return number(word, json);
  }
  [[nodiscard]] static bool number(std::string_view word, std::string& json) {
    if (word.empty()) return false;
    JsonScanner scanner;
    for (const char byte : word) {
      if (scanner.take(byte) != JsonScanner::Step::kInside) return false;
    }
    if (scanner.take(' ') != JsonScanner::Step::kPast) return false;
    json += word;
    return true;
  }
  [[nodiscard]] bool string(std::string& json) {
    const char quote = text_[at_++];
    json.push_back('"');
    while (at_ < text_.size()) {
      const char byte = text_[at_++];
      if (byte == quote) {
        json.push_back('"');
        return true;
      }
      if (byte != '\\') {
        append_escaped(json, byte);
      } else if (at_ == text_.size() || !escape(json)) {
        return false;
      }
    }
    return false;
  }
  [[nodiscard]] bool escape(std::string& json) {
    const char byte = text_[at_++];
    switch (byte) {
      case 'n': json += "\\n"; return true;
      case 't': json += "\\t"; return true;
      case 'r': json += "\\r"; return true;
      case '\n': return true;  // a line that goes on
      case 'x': return code(json, 2);
      case 'u': return code(json, 4);
      case 'U': return code(json, 8);
      default: break;
    }
    const bool is_itself = byte == '\\' || byte == '\'' || byte == '"' || byte == '/';
    if (!is_itself) append_escaped(json, '\\');
    append_escaped(json, byte);
    return true;
  }
  [[nodiscard]] bool code(std::string& json, size_t num_digits) {
    if (text_.size() - at_ < num_digits) return false;
    uint32_t code = 0;
    for (size_t i = 0; i < num_digits; ++i) {
      const char byte = text_[at_++];
      const size_t digit =
          std::string_view("0123456789abcdef")
              .find(static_cast<char>(byte >= 'A' && byte <= 'F' ? byte - 'A' + 'a' : byte));
      if (digit == std::string_view::npos) return false;
      code = code << 4 | static_cast<uint32_t>(digit);
    }
    if (code >= 0xd800 && code < 0xe000) {  // half of a pair: as JSON writes it
      json += "\\u" + std::string(text_.substr(at_ - 4, 4));
      return num_digits == 4;
    }
    if (code > 0x10ffff) return false;
    append_utf8(json, code);
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::vector<PythonCall>> parse_python_calls(std::string_view text) {
  PythonText python(text);
  std::vector<PythonCall> calls;
  const bool is_list = python.take('[');
  while (true) {
    if (is_list ? python.take(']') : python.at_end()) break;
    if (is_list && !calls.empty()) {
      if (!python.take(',')) return std::nullopt;
      if (python.take(']')) break;
    }
    if (!python.call(calls.emplace_back())) return std::nullopt;
    if (!is_list) (void)python.take(';');
  }
  if (calls.empty() || !python.at_end()) return std::nullopt;
  return calls;
}

std::optional<std::string> json_of_python(std::string_view text) {
  PythonText python(text);
  std::string json;
  if (!python.value(json) || !python.at_end()) return std::nullopt;
  return json;
}

}  // namespace heddle::answers
