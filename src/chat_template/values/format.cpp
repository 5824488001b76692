#include "chat_template/values/format.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "chat_template/values/text.h"

namespace heddle::chat_template {
namespace {

/// Whether repr() shows a character as itself: not controls, formats, separators, private use and
/// noncharacters. Code points that Unicode has not assigned count as printable, as which of them
/// there are depends on the version.
bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  if (c < 0xA1 || c == 0xAD) return false;
  if (text::is_space(c)) return false;
  static constexpr char32_t kFormats[][2] = {
      {0x600, 0x605},     {0x61C, 0x61C},     {0x6DD, 0x6DD},     {0x70F, 0x70F},
      {0x890, 0x891},     {0x8E2, 0x8E2},     {0x180E, 0x180E},   {0x200B, 0x200F},
      {0x2028, 0x202E},   {0x2060, 0x206F},   {0xD800, 0xF8FF},   {0xFDD0, 0xFDEF},
      {0xFEFF, 0xFEFF},   {0xFFF0, 0xFFFB},   {0xFFFE, 0xFFFF},   {0x110BD, 0x110BD},
      {0x110CD, 0x110CD}, {0x13430, 0x13438}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A},
      {0xE0000, 0xE00FF}, {0xE01F0, 0x10FFFF}};
  for (const auto& [first, last] : kFormats) {
    if (c >= first && c <= last) return false;
  }
  return (c & 0xFFFE) != 0xFFFE;
}

void append_hex(BudgetedText& out, const char* format, char32_t c) {
  char digits[16];
  std::snprintf(digits, sizeof digits, format, static_cast<unsigned>(c));
  out += digits;
}

void append_string_repr(BudgetedText& out, std::string_view s) {
  const bool has_single = s.find('\'') != s.npos, has_double = s.find('"') != s.npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out += quote;
  for (size_t pos = 0; pos < s.size();) {
    const size_t start = pos;
    const char32_t c = text::next_code_point(s, pos);
    if (c == '\\' || c == static_cast<unsigned char>(quote)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out += s.substr(start, pos - start);
    } else {
      append_hex(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    }
  }
  out += quote;
}

class ReprWriter {
 public:
  explicit ReprWriter(Budget& budget) : out(budget), budget_(budget) {}
  BudgetedText out;

  void write(const Value& value) {
    budget_.spend_steps(1);
    if (value.is_string()) {
      write_string(*value.string());
    } else if (value.sequence() != nullptr) {
      write_sequence(*value.sequence());
    } else if (value.dict() != nullptr) {
      write_dict(*value.dict());
    } else {
      write_scalar(value);
    }
  }

 private:
  void write_string(const String& string) {
    if (string.is_safe) out += "Markup(";
    append_string_repr(out, string.bytes);
    if (string.is_safe) out += ')';
  }
  void write_scalar(const Value& value) {
    if (value.is_undefined()) {
      out += "Undefined";
    } else if (value.is_none()) {
      out += "None";
    } else if (value.is_bool()) {
      out += value.as_bool() ? "True" : "False";
    } else if (value.is_int()) {
      out += std::to_string(value.as_int());
    } else if (value.is_float()) {
      out += repr_of(value.as_double());
    } else if (value.loop() != nullptr) {
      out += "<LoopContext " + std::to_string(value.loop()->index0 + 1) + "/" +
             std::to_string(value.loop()->items->items.size()) + ">";
    } else {
      throw_error(ErrorCode::kUnsupported, "printing a ", value.type_name(),
                  value.iterator() != nullptr ? ": apply the filter list first" : "");
    }
  }
  void write_sequence(const SequenceValue& sequence) {
    using Kind = SequenceValue::Kind;
    if (sequence.kind == Kind::kRange) {
      throw_error(ErrorCode::kUnsupported, "printing a range: apply the filter list first");
    }
    const bool is_tuple = sequence.kind == Kind::kTuple;
    if (sequence.kind >= Kind::kKeys) {
      out += sequence.kind == Kind::kKeys     ? "dict_keys("
             : sequence.kind == Kind::kValues ? "dict_values("
                                              : "dict_items(";
    }
    out += is_tuple ? '(' : '[';
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out += ", ";
      write(sequence.items[i]);
    }
    if (is_tuple && sequence.items.size() == 1) out += ',';
    out += is_tuple ? ')' : ']';
    if (sequence.kind >= Kind::kKeys) out += ')';
  }
  void write_dict(const Dict& dict) {
    out += '{';
    for (size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) out += ", ";
      write(dict.entries[i].first);
      out += ": ";
      write(dict.entries[i].second);
    }
    out += '}';
  }

  Budget& budget_;
};

}  // namespace

std::string repr_of(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const double size = std::abs(value);
  // Python changes to the exponent form below 1e-4 and from 1e16 on.
  const auto format = size != 0 && (size < 1e-4 || size >= 1e16) ? std::chars_format::scientific
                                                                 : std::chars_format::fixed;
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr;
  std::string result(buffer, end);
  if (format == std::chars_format::fixed && result.find('.') == result.npos) result += ".0";
  return result;
}

std::string to_repr(Budget& budget, const Value& value) {
  ReprWriter writer(budget);
  writer.write(value);
  return writer.out.take();
}

std::string to_text(Budget& budget, const Value& value) {
  if (value.is_undefined()) return {};
  if (value.is_string()) {
    budget.spend_bytes(value.bytes().size() + kObjectBytes);
    return value.bytes();
  }
  return to_repr(budget, value);
}

}  // namespace heddle::chat_template
