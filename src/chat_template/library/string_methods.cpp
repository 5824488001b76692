// Methods of str.
#include <algorithm>
#include <optional>

#include "chat_template/interpreter/eval.h"
#include "chat_template/syntax/callable.h"
#include "chat_template/values/text.h"
#include "files/printable.h"

namespace heddle::chat_template {
namespace {

constexpr size_t kNone = std::string_view::npos;

/// The string that a method is called on; the method's cost is its size.
const std::string& subject(Call& call) {
  call.interpreter.budget.spend_bytes(call.self.bytes().size());
  return call.self.bytes();
}

std::optional<std::string_view> optional_text(Call& call, size_t i) {
  if (call.some(i) == nullptr) return std::nullopt;
  return call.text(i);
}

/// The characters that strip() and its like take away, made a set from either side.
std::optional<std::string_view> stripped_characters(Call& call) {
  const auto chars = optional_text(call, 0);
  if (chars) call.interpreter.budget.spend_bytes(chars->size(), 2 * sizeof(char32_t));
  return chars;
}

/// A result that stays marked as safe where the string is.
Value like_self(Call& call, std::string result) {
  return Value(std::move(result), call.self.string()->is_safe);
}

/// Escaped strings would have to escape the arguments of these methods.
void refuse_safe(Call& call, const char* method) {
  if (call.self.string()->is_safe) {
    throw_error(ErrorCode::kUnsupported, "method ", files::quote(method), " of an escaped string");
  }
}

template <std::string (*change)(std::string_view)>
Value change_case(Call& call) {
  call.interpreter.budget.spend_bytes(call.self.bytes().size());
  return like_self(call, change(subject(call)));
}

Value strip(Call& call) {
  const auto chars = stripped_characters(call);
  return like_self(call,
                   std::string(text::strip_right(text::strip_left(subject(call), chars), chars)));
}
Value strip_left(Call& call) {
  return like_self(call, std::string(text::strip_left(subject(call), stripped_characters(call))));
}
Value strip_right(Call& call) {
  return like_self(call, std::string(text::strip_right(subject(call), stripped_characters(call))));
}

Value list_of(Call& call, const text::Pieces& pieces) {
  Budget& budget = call.interpreter.budget;
  budget.spend_bytes(call.self.bytes().size());
  budget.spend_bytes(pieces.size(), sizeof(Value) + kObjectBytes);
  Values items;
  items.reserve(pieces.size());
  for (const std::string_view piece : pieces) items.push_back(like_self(call, std::string(piece)));
  return Value::list(std::move(items));
}

std::optional<std::string_view> separator(Call& call) {
  const auto given = optional_text(call, 0);
  HEDDLE_CHECK(!given || !given->empty(), "split at an empty separator");
  return given;
}
Value split(Call& call) {
  return list_of(call, text::split(call.interpreter.budget, subject(call), separator(call),
                                   call.integer(1, -1)));
}
Value split_right(Call& call) {
  return list_of(call, text::split_right(call.interpreter.budget, subject(call), separator(call),
                                         call.integer(1, -1)));
}
Value split_lines(Call& call) {
  return list_of(call, text::split_lines(call.interpreter.budget, subject(call), call.flag(0)));
}

/// The part of the string that the arguments `first` and `first` + 1 choose, and the place where it
/// starts.
struct Part {
  std::string_view bytes;
  size_t index;  // in code points
  bool is_valid;
};
Part part_of(Call& call, size_t first) {
  const std::string& s = subject(call);
  if (call.some(first) == nullptr && call.some(first + 1) == nullptr) return {s, 0, true};
  const auto length = static_cast<int64_t>(text::length(s));
  const auto place = [&](size_t i, int64_t otherwise) {
    int64_t index = call.some(i) == nullptr ? otherwise : call.integer(i, 0);
    if (index < 0) index = std::max<int64_t>(index + length, 0);
    return index;
  };
  const int64_t start = place(first, 0), end = std::min(place(first + 1, length), length);
  if (start > end) return {{}, 0, false};
  const size_t from = text::byte_offset(s, static_cast<size_t>(start));
  const size_t to = text::byte_offset(s, static_cast<size_t>(end));
  return {std::string_view(s).substr(from, to - from), static_cast<size_t>(start), true};
}

template <class Matches>
Value matches_any(Call& call, const Matches& matches) {
  const Part part = part_of(call, 1);
  const auto matches_one = [&](const Value& affix) {
    HEDDLE_CHECK(affix.is_string(), "startswith and endswith take a string or a tuple of strings, ",
                 affix.type_name(), " is given");
    if (!part.is_valid || affix.bytes().size() > part.bytes.size()) return false;
    call.interpreter.budget.spend_bytes(affix.bytes().size());
    return matches(part.bytes, affix.bytes());
  };
  const Value& affixes = *call.arg(0);
  if (!affixes.is_tuple()) return matches_one(affixes);
  const Values& items = affixes.sequence()->items;
  call.interpreter.budget.spend_steps(items.size());
  return std::any_of(items.begin(), items.end(), matches_one);
}
Value starts_with(Call& call) {
  return matches_any(
      call, [](std::string_view s, std::string_view affix) { return s.starts_with(affix); });
}
Value ends_with(Call& call) {
  return matches_any(call,
                     [](std::string_view s, std::string_view affix) { return s.ends_with(affix); });
}

Value find(Call& call) {
  const std::string& needle = call.text(0);
  const Part part = part_of(call, 1);
  const size_t at = part.is_valid ? text::find(part.bytes, needle) : kNone;
  if (at == kNone) return int64_t{-1};
  return static_cast<int64_t>(part.index + text::length(part.bytes.substr(0, at)));
}
/// Backwards, because only a search from the left takes a time linear in the string.
Value find_last(Call& call) {
  const std::string& needle = call.text(0);
  const Part part = part_of(call, 1);
  if (!part.is_valid) return int64_t{-1};
  call.interpreter.budget.spend_bytes(part.bytes.size() + needle.size());
  const std::string reversed(part.bytes.rbegin(), part.bytes.rend());
  const std::string reversed_needle(needle.rbegin(), needle.rend());
  const size_t at = text::find(reversed, reversed_needle);
  if (at == kNone) return int64_t{-1};
  const size_t start = part.bytes.size() - at - needle.size();
  return static_cast<int64_t>(part.index + text::length(part.bytes.substr(0, start)));
}

template <Value (*find_place)(Call&)>
Value index(Call& call) {
  const Value place = find_place(call);
  HEDDLE_CHECK(place.as_int() >= 0, "the substring is not found");
  return place;
}

/// What stands before a separator, the separator and what follows; without it the string and two
/// empty ones, these in front where the last separator was looked for.
Value partition(Call& call, bool from_right) {
  const std::string& s = subject(call);
  const std::string& separator = call.text(0);
  HEDDLE_CHECK(!separator.empty(), "partition at an empty separator");
  Budget& budget = call.interpreter.budget;
  budget.spend_bytes(s.size() + separator.size() + 3 * (sizeof(Value) + kObjectBytes));
  const text::Pieces pieces = from_right ? text::split_right(budget, s, separator, 1)
                                         : text::split(budget, s, separator, 1);
  const auto part = [&](std::string_view bytes) { return like_self(call, std::string(bytes)); };
  if (pieces.size() == 2) {
    return Value::tuple({part(pieces[0]), part(separator), part(pieces[1])});
  }
  return from_right ? Value::tuple({part(""), part(""), part(s)})
                    : Value::tuple({part(s), part(""), part("")});
}

Value count(Call& call) {
  const std::string& needle = call.text(0);
  const Part part = part_of(call, 1);
  return static_cast<int64_t>(part.is_valid ? text::count(part.bytes, needle) : 0);
}

Value replace(Call& call) {
  refuse_safe(call, "replace");
  const std::string &s = subject(call), &from = call.text(0), &to = call.text(1);
  const int64_t limit = call.integer(2, -1);
  const size_t places = text::count(s, from);
  const size_t done = limit < 0 ? places : std::min(places, static_cast<size_t>(limit));
  call.interpreter.budget.spend_bytes(s.size());
  call.interpreter.budget.spend_bytes(done, to.size());
  return text::replace(s, from, to, limit);
}

Value join(Call& call) {
  refuse_safe(call, "join");
  BudgetedText result(call.interpreter.budget);
  bool is_first = true;
  for (const Value& item : call.interpreter.iterate(*call.arg(0))) {
    HEDDLE_CHECK(item.is_string(), "join takes strings, ", item.type_name(), " is given");
    if (!is_first) result += call.self.bytes();
    result += item.bytes();
    is_first = false;
  }
  return result.take();
}

Value remove_prefix(Call& call) {
  const std::string &s = subject(call), &prefix = call.text(0);
  return like_self(call, s.starts_with(prefix) ? s.substr(prefix.size()) : s);
}
Value remove_suffix(Call& call) {
  const std::string &s = subject(call), &suffix = call.text(0);
  return like_self(call, s.ends_with(suffix) ? s.substr(0, s.size() - suffix.size()) : s);
}

constexpr Callable kStringMethods[] = {
    {.name = "strip", .call = strip, .parameters = {"chars"}},
    {.name = "lstrip", .call = strip_left, .parameters = {"chars"}},
    {.name = "rstrip", .call = strip_right, .parameters = {"chars"}},
    {.name = "split", .call = split, .parameters = {"sep", "maxsplit"}},
    {.name = "rsplit", .call = split_right, .parameters = {"sep", "maxsplit"}},
    {.name = "splitlines", .call = split_lines, .parameters = {"keepends"}},
    {.name = "startswith",
     .call = starts_with,
     .parameters = {"prefix", "start", "end"},
     .required = 1},
    {.name = "endswith",
     .call = ends_with,
     .parameters = {"suffix", "start", "end"},
     .required = 1},
    {.name = "upper", .call = change_case<text::upper>},
    {.name = "lower", .call = change_case<text::lower>},
    {.name = "title", .call = change_case<text::title>},
    {.name = "capitalize", .call = change_case<text::capitalize>},
    {.name = "isupper", .call = [](Call& c) -> Value { return text::is_upper(subject(c)); }},
    {.name = "islower", .call = [](Call& c) -> Value { return text::is_lower(subject(c)); }},
    {.name = "replace", .call = replace, .parameters = {"old", "new", "count"}, .required = 2},
    {.name = "find", .call = find, .parameters = {"sub", "start", "end"}, .required = 1},
    {.name = "rfind", .call = find_last, .parameters = {"sub", "start", "end"}, .required = 1},
    {.name = "index", .call = index<find>, .parameters = {"sub", "start", "end"}, .required = 1},
    {.name = "rindex",
     .call = index<find_last>,
     .parameters = {"sub", "start", "end"},
     .required = 1},
    {.name = "partition",
     .call = [](Call& c) { return partition(c, false); },
     .parameters = {"sep"},
     .required = 1},
    {.name = "rpartition",
     .call = [](Call& c) { return partition(c, true); },
     .parameters = {"sep"},
     .required = 1},
    {.name = "count", .call = count, .parameters = {"sub", "start", "end"}, .required = 1},
    {.name = "join", .call = join, .parameters = {"iterable"}, .required = 1},
    {.name = "removeprefix", .call = remove_prefix, .parameters = {"prefix"}, .required = 1},
    {.name = "removesuffix", .call = remove_suffix, .parameters = {"suffix"}, .required = 1},
};
}  // namespace

Callables string_methods() { return kStringMethods; }

}  // namespace heddle::chat_template
