// str.format(), as the sandbox of jinja2 runs it.
#include <algorithm>
#include <charconv>

#include "chat_template/interpreter/eval.h"
#include "chat_template/syntax/callable.h"
#include "chat_template/values/format.h"
#include "chat_template/values/string_format.h"
#include "files/printable.h"

namespace heddle::chat_template {
namespace {

/// Replaces the fields of one format text; fields inside a field's own format are one level deeper.
class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const Arguments& arguments)
      : interpreter_(interpreter), arguments_(arguments) {}

  std::string run(std::string_view format, int levels) {
    HEDDLE_CHECK(levels > 0, "fields of a format nest too deep");
    interpreter_.budget.spend_bytes(format.size());
    BudgetedText out(interpreter_.budget);
    for (size_t pos = 0; pos < format.size();) {
      const char c = format[pos];
      if (c != '{' && c != '}') {
        const size_t end = std::min(format.find_first_of("{}", pos), format.size());
        out += format.substr(pos, end - pos);
        pos = end;
      } else if (pos + 1 < format.size() && format[pos + 1] == c) {
        out += c;
        pos += 2;
      } else {
        HEDDLE_CHECK(c == '{', "a single '}' in a format");
        const size_t end = field_end(format, pos + 1);
        out += field(format.substr(pos + 1, end - pos - 1), levels);
        pos = end + 1;
      }
    }
    return out.take();
  }

 private:
  /// The place of the brace that closes the field which starts at `pos`. Braces do not count
  /// between square brackets.
  static size_t field_end(std::string_view format, size_t pos) {
    bool in_item = false;
    for (int open = 1; pos < format.size(); ++pos) {
      const char c = format[pos];
      if (c == '[') in_item = true;
      if (c == ']') in_item = false;
      if (in_item) continue;
      if (c == '{') ++open;
      if (c == '}' && --open == 0) return pos;
    }
    throw_error(ErrorCode::kInvalidArgument, "a single '{' in a format");
  }

  std::string field(std::string_view field, int levels) {
    interpreter_.budget.spend_steps(1);
    size_t name_end = 0;
    for (bool in_item = false; name_end < field.size(); ++name_end) {
      const char c = field[name_end];
      HEDDLE_CHECK(c != '{', "'{' in the name of a field");
      if (c == '[') in_item = true;
      if (c == ']') in_item = false;
      if (!in_item && (c == '!' || c == ':')) break;
    }
    Value value = value_of(field.substr(0, name_end));
    std::string_view rest = field.substr(name_end);
    if (rest.starts_with('!')) {
      HEDDLE_CHECK(rest.size() > 1 && (rest.size() == 2 || rest[2] == ':'),
                   "a conversion of a format is not valid");
      value = converted(value, rest[1]);
      rest.remove_prefix(2);
    }
    if (rest.empty()) return format_value(interpreter_.budget, value, "");
    return format_value(interpreter_.budget, value, run(rest.substr(1), levels - 1));
  }

  Value converted(const Value& value, char conversion) {
    Budget& budget = interpreter_.budget;
    if (conversion == 's') return to_text(budget, value);
    if (conversion == 'r') return to_repr(budget, value);
    HEDDLE_CHECK(conversion == 'a', "unknown conversion ", files::quote(std::string(1, conversion)),
                 " in a format");
    return to_ascii_repr(budget, value);
  }

  /// "name.attribute[key]", where the name may be a number, or nothing for the next argument.
  Value value_of(std::string_view path) {
    const size_t first_end = std::min(path.find_first_of(".["), path.size());
    Value value = argument(path.substr(0, first_end));
    path.remove_prefix(first_end);
    while (!path.empty()) {
      const bool is_item = path.front() == '[';
      path.remove_prefix(1);
      const size_t end = is_item ? path.find(']') : std::min(path.find_first_of(".["), path.size());
      HEDDLE_CHECK(end != path.npos && end > 0, "the name of a field is not valid");
      const std::string name(path.substr(0, end));
      interpreter_.budget.spend_bytes(name.size() + kObjectBytes);
      const int64_t index = is_item ? index_of(name) : -1;
      value = index >= 0 ? interpreter_.item(value, index)
              : is_item  ? interpreter_.item(value, name)
                         : interpreter_.attribute(value, name);
      path.remove_prefix(is_item ? end + 1 : end);
      HEDDLE_CHECK(path.empty() || path.front() == '.' || path.front() == '[',
                   "the name of a field is not valid");
    }
    return value;
  }

  /// The number that the text is, or -1.
  static int64_t index_of(std::string_view digits) {
    int64_t index = -1;
    const char* end = digits.data() + digits.size();
    const bool is_signed = digits.starts_with('-');
    const auto result = std::from_chars(digits.data(), end, index);
    return !is_signed && result.ec == std::errc() && result.ptr == end ? index : -1;
  }

  Value argument(std::string_view name) {
    int64_t index = index_of(name);
    if (name.empty() || index >= 0) {
      Numbering& numbering = numbering_;
      const Numbering wanted = name.empty() ? Numbering::kAutomatic : Numbering::kManual;
      HEDDLE_CHECK(numbering == Numbering::kNone || numbering == wanted,
                   "fields of a format with and without a number");
      numbering = wanted;
      if (name.empty()) index = next_++;
      HEDDLE_CHECK(index < static_cast<int64_t>(arguments_.positional.size()),
                   "a format asks for argument ", index, ", ", arguments_.positional.size(),
                   " are given");
      return arguments_.positional[static_cast<size_t>(index)];
    }
    interpreter_.budget.spend_steps(arguments_.named.size());
    for (const auto& [known, value] : arguments_.named) {
      if (is_equal_text(interpreter_.budget, known, name)) return value;
    }
    throw_error(ErrorCode::kInvalidArgument, "a format asks for ", files::quote(name),
                ", which is not given");
  }

  enum class Numbering : uint8_t { kNone, kAutomatic, kManual };
  Interpreter& interpreter_;
  const Arguments& arguments_;
  Numbering numbering_ = Numbering::kNone;
  int64_t next_ = 0;
};

void refuse_safe(const Value& text) {
  if (text.string()->is_safe) throw_error(ErrorCode::kUnsupported, "format of an escaped string");
}

Value format(Call& call) {
  refuse_safe(call.self);
  return BraceFormatter(call.interpreter, call.raw).run(call.self.bytes(), 2);
}

Value format_map(Call& call) {
  refuse_safe(call.self);
  const Dict* dict = call.arg(0)->dict();
  HEDDLE_CHECK(dict != nullptr, "format_map takes a dict");
  Arguments arguments;
  for (const auto& [key, value] : dict->entries) {
    if (!key.is_string()) continue;  // no field can ask for it
    call.interpreter.budget.spend_bytes(key.bytes().size() + kObjectBytes);
    arguments.named.emplace_back(key.bytes(), value);
  }
  return BraceFormatter(call.interpreter, arguments).run(call.self.bytes(), 2);
}

/// The filter: format % arguments.
Value percent(Call& call) {
  Budget& budget = call.interpreter.budget;
  HEDDLE_CHECK(call.raw.positional.empty() || call.raw.named.empty(),
               "format takes arguments with names or without, not both");
  if (call.self.is_string()) refuse_safe(call.self);
  const std::string text = to_text(budget, call.self);
  if (call.raw.named.empty()) {
    budget.spend_bytes(call.raw.positional.size(), sizeof(Value));
    return percent_format(budget, text, Value::tuple(call.raw.positional));
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : call.raw.named) {
    budget.spend_bytes(name.size() + sizeof(entries[0]) + kObjectBytes);
    entries.emplace_back(name, value);
  }
  return percent_format(budget, text, Value::dict(std::move(entries)));
}

constexpr Callable kFormatMethods[] = {
    {.name = "format", .call = format, .is_variadic = true},
    {.name = "format_map", .call = format_map, .parameters = {"mapping"}, .required = 1},
};
constexpr Callable kFormatFilters[] = {{.name = "format", .call = percent, .is_variadic = true}};

}  // namespace

Callables format_methods() { return kFormatMethods; }
Callables format_filters() { return kFormatFilters; }

}  // namespace heddle::chat_template
