// json.dumps() as the filter tojson uses it.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "chat_template/values/format.h"
#include "chat_template/values/text.h"

namespace heddle::chat_template {
namespace {

class JsonWriter {
 public:
  JsonWriter(Budget& budget, const JsonStyle& style)
      : out(budget), budget_(budget), style_(style) {}
  BudgetedText out;

  void write(const Value& value) {
    budget_.spend_steps(1);
    if (value.is_string()) {
      write_string(value.bytes());
    } else if (value.is_list() || value.is_tuple()) {
      const Values& items = value.sequence()->items;
      write_items('[', ']', items.size(), [&](size_t i) { write(items[i]); });
    } else if (value.dict() != nullptr) {
      write_dict(*value.dict());
    } else {
      write_scalar(value);
    }
  }

 private:
  void write_scalar(const Value& value) {
    if (value.is_none()) {
      out += "null";
    } else if (value.is_bool()) {
      out += value.as_bool() ? "true" : "false";
    } else if (value.is_int()) {
      out += std::to_string(value.as_int());
    } else if (value.is_float()) {
      const double number = value.as_double();
      out += std::isnan(number)   ? "NaN"
             : std::isinf(number) ? (number > 0 ? "Infinity" : "-Infinity")
                                  : repr_of(number);
    } else {
      throw_error(ErrorCode::kInvalidArgument, "tojson of a ", value.type_name());
    }
  }

  void write_dict(const Dict& dict) {
    budget_.spend_bytes(dict.entries.size(), 2 * sizeof(void*));  // the second to sort them
    std::vector<const std::pair<Value, Value>*> entries;
    entries.reserve(dict.entries.size());
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return is_less(budget_, a->first, b->first);
      });
    }
    write_items('{', '}', entries.size(), [&](size_t i) {
      write_key(entries[i]->first);
      out += style_.key_separator;
      write(entries[i]->second);
    });
  }

  void write_key(const Value& key) {
    HEDDLE_CHECK(key.is_string() || key.is_number() || key.is_none(), "tojson of a dict with a ",
                 key.type_name(), " as key");
    if (key.is_string()) return write_string(key.bytes());
    out += '"';
    write_scalar(key);
    out += '"';
  }

  template <class WriteItem>
  void write_items(char open, char close, size_t count, const WriteItem& write_item) {
    out += open;
    ++level_;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out += style_.item_separator;
      start_line();
      write_item(i);
    }
    --level_;
    if (count > 0) start_line();
    out += close;
  }

  void start_line() {
    if (!style_.indent) return;
    out += '\n';
    for (int i = 0; i < level_; ++i) out += *style_.indent;
  }

  void write_string(std::string_view s) {
    static constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
    out += '"';
    for (size_t pos = 0; pos < s.size();) {
      const size_t start = pos;
      const char32_t c = text::next_code_point(s, pos);
      const size_t escape = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : kEscaped.npos;
      if (escape != kEscaped.npos) {
        out += '\\';
        out += kLetters[escape];
      } else if (c < 0x20 || (style_.ensure_ascii && c > 0x7F)) {
        write_escape(c);
      } else {
        out += s.substr(start, pos - start);
      }
    }
    out += '"';
  }

  void write_escape(char32_t c) {
    char digits[16];
    if (c >= 0x10000) {
      std::snprintf(digits, sizeof digits, "\\u%04x", static_cast<unsigned>(0xD7C0 + (c >> 10)));
      out += digits;
      c = 0xDC00 + (c & 0x3FF);
    }
    std::snprintf(digits, sizeof digits, "\\u%04x", static_cast<unsigned>(c));
    out += digits;
  }

  Budget& budget_;
  const JsonStyle& style_;
  int level_ = 0;
};

}  // namespace

std::string to_json(Budget& budget, const Value& value, const JsonStyle& style) {
  JsonWriter writer(budget, style);
  writer.write(value);
  return writer.out.take();
}

}  // namespace heddle::chat_template
