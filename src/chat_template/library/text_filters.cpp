// Filters that make text.
#include "chat_template/interpreter/eval.h"
#include "chat_template/interpreter/operators.h"
#include "chat_template/syntax/callable.h"
#include "chat_template/values/character.h"
#include "chat_template/values/format.h"
#include "chat_template/values/text.h"

namespace heddle::chat_template {
namespace {
namespace of_text {

/// The value as text, marked as safe where it is: jinja2's soft_str().
Value soft_text(Call& call) {
  if (!call.self.is_string()) return to_text(call.interpreter.budget, call.self);
  call.interpreter.budget.spend_bytes(call.self.bytes().size());
  return call.self;
}

template <std::string (*change)(std::string_view)>
Value change_case(Call& call) {
  const Value text = soft_text(call);
  call.interpreter.budget.spend_bytes(text.bytes().size(), 2);
  return Value(change(text.bytes()), text.string()->is_safe);
}

/// Unlike str.title(), a word starts after white space, a hyphen or an opening bracket only.
std::string capitalize_words(std::string_view s) {
  std::string result;
  std::string word;
  const auto end_word = [&] {
    size_t second = 0;
    if (!word.empty()) text::next_code_point(word, second);
    result += text::upper(word.substr(0, second)) + text::lower(word.substr(second));
    word.clear();
  };
  bool between = false;  // a run of separators is a word of its own
  for (size_t pos = 0; pos < s.size();) {
    const size_t start = pos;
    const char32_t c = text::next_code_point(s, pos);
    const bool is_separator =
        text::is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    if (is_separator != between) end_word();
    between = is_separator;
    word += s.substr(start, pos - start);
  }
  end_word();
  return result;
}

Value trim(Call& call) {
  const Value text = soft_text(call);
  std::optional<std::string_view> chars;
  call.interpreter.budget.spend_bytes(text.bytes().size());
  if (call.some(0) != nullptr) {
    chars = call.text(0);
    call.interpreter.budget.spend_bytes(chars->size(), 2 * sizeof(char32_t));
  }
  return Value(std::string(text::strip_right(text::strip_left(text.bytes(), chars), chars)),
               text.string()->is_safe);
}

Value replace(Call& call) {
  Budget& budget = call.interpreter.budget;
  const std::string s = to_text(budget, call.self), from = to_text(budget, *call.arg(0)),
                    to = to_text(budget, *call.arg(1));
  const int64_t limit = call.some(2) == nullptr ? -1 : call.integer(2, -1);
  const size_t places = text::count(s, from);
  const size_t done = limit < 0 ? places : std::min(places, static_cast<size_t>(limit));
  budget.spend_bytes(s.size());
  budget.spend_bytes(done, to.size());
  return text::replace(s, from, to, limit);
}

Value indent(Call& call) {
  if (call.self.is_undefined()) throw Error(ErrorCode::kInvalidArgument, call.self.why_undefined());
  HEDDLE_CHECK(call.self.is_string(), "indent of a ", call.self.type_name());
  if (call.self.string()->is_safe)
    throw_error(ErrorCode::kUnsupported, "indent of an escaped string");
  Budget& budget = call.interpreter.budget;
  std::string margin(4, ' ');
  if (call.arg(0) != nullptr && call.arg(0)->is_string()) {
    budget.spend_bytes(call.text(0).size());
    margin = call.text(0);
  } else if (call.arg(0) != nullptr) {
    const int64_t width = call.integer(0, 4);
    const size_t size = width > 0 ? static_cast<size_t>(width) : 0;
    budget.spend_bytes(size);
    margin.assign(size, ' ');
  }
  const bool first = call.flag(1), blank = call.flag(2);
  budget.spend_bytes(call.self.bytes().size());
  const std::string s =
      call.self.bytes() + "\n";  // as jinja2 does: the last line end is dropped below
  BudgetedText result(budget);
  bool is_first = true;
  for (const std::string_view line : text::split_lines(budget, s, false)) {
    const bool has_margin = is_first ? first : blank || !line.empty();
    if (!is_first) result += '\n';
    if (has_margin) result += margin;
    result += line;
    is_first = false;
  }
  return result.take();
}

Value escape(Call& call) {
  const Value text = soft_text(call);
  if (text.string()->is_safe) return text;
  BudgetedText escaped(call.interpreter.budget);
  append_escaped(escaped, text.bytes());
  return Value(escaped.take(), true);
}
Value mark_safe(Call& call) { return Value(to_text(call.interpreter.budget, call.self), true); }

/// The two texts of `separators`.
void read_separators(Budget& budget, const Value& separators, JsonStyle& style) {
  const SequenceValue* pair = separators.sequence();
  HEDDLE_CHECK(pair != nullptr && pair->items.size() == 2 && pair->items[0].is_string() &&
                   pair->items[1].is_string(),
               "tojson takes two strings as separators");
  budget.spend_bytes(pair->items[0].bytes().size() + pair->items[1].bytes().size());
  style.item_separator = pair->items[0].bytes();
  style.key_separator = pair->items[1].bytes();
}

Value tojson(Call& call) {
  JsonStyle style;
  style.ensure_ascii = call.flag(0);
  if (call.some(1) != nullptr) {
    if (call.arg(1)->is_string()) {
      call.interpreter.budget.spend_bytes(call.text(1).size());
      style.indent = call.text(1);
    } else {
      const int64_t width = call.integer(1, 0);
      HEDDLE_CHECK(width <= 1024, "tojson with an indent of ", width);
      style.indent = std::string(static_cast<size_t>(width > 0 ? width : 0), ' ');
    }
    style.item_separator.resize(1);  // no blank at the end of a line
  }
  if (call.some(2) != nullptr) read_separators(call.interpreter.budget, *call.arg(2), style);
  style.sort_keys = call.flag(3);
  return to_json(call.interpreter.budget, call.self, style);
}

/// Cut at a blank, or with `killwords` anywhere, where it is longer than `length` and the leeway.
Value truncate(Call& call) {
  HEDDLE_CHECK(call.self.is_string(), "truncate of a ", call.self.type_name());
  if (call.self.string()->is_safe) {
    throw_error(ErrorCode::kUnsupported, "truncate of an escaped string");
  }
  Budget& budget = call.interpreter.budget;
  const std::string& s = call.self.bytes();
  const std::string end = call.arg(2) == nullptr ? "..." : call.text(2);
  budget.spend_bytes(2 * s.size() + end.size());
  const int64_t length = call.integer(0, 255), size = static_cast<int64_t>(text::length(s)),
                end_size = static_cast<int64_t>(text::length(end));
  const int64_t leeway = call.some(3) == nullptr ? 5 : call.integer(3, 5);
  HEDDLE_CHECK(length >= end_size && leeway >= 0, "truncate to ", length, " characters, leeway ",
               leeway);
  if (size - leeway <= length) return call.self;
  const size_t cut = text::byte_offset(s, static_cast<size_t>(length - end_size));
  std::string_view kept = std::string_view(s).substr(0, cut);
  if (!call.flag(1)) kept = kept.substr(0, kept.rfind(' '));
  return std::string(kept) + end;
}

Value count_words(Call& call) {
  const std::string s = to_text(call.interpreter.budget, call.self);
  int64_t count = 0;
  bool in_word = false;
  for (size_t pos = 0; pos < s.size();) {
    const char32_t c = text::next_code_point(s, pos);
    const bool is_word = c == '_' || text::kind_of(c) != text::CharacterKind::kOther;
    count += is_word && !in_word ? 1 : 0;
    in_word = is_word;
  }
  return count;
}

Value center(Call& call) {
  Budget& budget = call.interpreter.budget;
  const std::string s = to_text(budget, call.self);
  const int64_t width = call.integer(0, 80), length = static_cast<int64_t>(text::length(s));
  const auto missing = static_cast<size_t>(width > length ? width - length : 0);
  budget.spend_bytes(missing);
  const size_t left = missing / 2 + (missing & static_cast<size_t>(width) & 1);
  return std::string(left, ' ') + s + std::string(missing - left, ' ');
}

constexpr Callable kFilters[] = {
    {.name = "trim", .call = trim, .parameters = {"chars"}},
    {.name = "upper", .call = change_case<text::upper>},
    {.name = "lower", .call = change_case<text::lower>},
    {.name = "capitalize", .call = change_case<text::capitalize>},
    {.name = "title", .call = change_case<capitalize_words>},
    {.name = "replace", .call = replace, .parameters = {"old", "new", "count"}, .required = 2},
    {.name = "truncate", .call = truncate, .parameters = {"length", "killwords", "end", "leeway"}},
    {.name = "wordcount", .call = count_words},
    {.name = "center", .call = center, .parameters = {"width"}},
    {.name = "indent", .call = indent, .parameters = {"width", "first", "blank"}},
    {.name = "string", .call = soft_text},
    {.name = "safe", .call = mark_safe},
    {.name = "escape", .call = escape},
    {.name = "e", .call = escape},
    {.name = "tojson",
     .call = tojson,
     .parameters = {"ensure_ascii", "indent", "separators", "sort_keys"}},
};

}  // namespace of_text
}  // namespace

Callables text_filters() { return of_text::kFilters; }

}  // namespace heddle::chat_template
