// Methods of str, dict, list, tuple and the loop variable.
#include <algorithm>
#include <optional>

#include "model/template_callable.h"
#include "model/template_eval.h"
#include "model/template_text.h"

namespace heddle::model {
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

/// A result that stays marked as safe where the string is.
Value like_self(Call& call, std::string result) {
  return Value(std::move(result), call.self.string()->is_safe);
}

/// Escaped strings would have to escape the arguments of these methods.
void refuse_safe(Call& call, const char* method) {
  if (call.self.string()->is_safe) {
    throw_error(ErrorCode::kUnsupported, "method '", method, "' of an escaped string");
  }
}

template <std::string (*change)(std::string_view)>
Value change_case(Call& call) {
  return like_self(call, change(subject(call)));
}

Value strip(Call& call) {
  const auto chars = optional_text(call, 0);
  return like_self(call,
                   std::string(text::strip_right(text::strip_left(subject(call), chars), chars)));
}
Value strip_left(Call& call) {
  return like_self(call, std::string(text::strip_left(subject(call), optional_text(call, 0))));
}
Value strip_right(Call& call) {
  return like_self(call, std::string(text::strip_right(subject(call), optional_text(call, 0))));
}

Value list_of(Call& call, const text::Pieces& pieces) {
  call.interpreter.budget.spend_bytes(pieces.size() * (sizeof(Value) + sizeof(String)));
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
  return list_of(call, text::split(subject(call), separator(call), call.integer(1, -1)));
}
Value split_right(Call& call) {
  const auto given = separator(call);
  // Searching backwards takes a time of the text times the separator.
  if (given) call.interpreter.budget.spend_bytes(given->size() / 16 * call.self.bytes().size());
  return list_of(call, text::split_right(subject(call), given, call.integer(1, -1)));
}
Value split_lines(Call& call) {
  return list_of(call, text::split_lines(subject(call), call.flag(0)));
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
    return part.is_valid && matches(part.bytes, affix.bytes());
  };
  const Value& affixes = *call.arg(0);
  if (!affixes.is_tuple()) return matches_one(affixes);
  const Values& items = affixes.sequence()->items;
  call.interpreter.budget.spend_steps(static_cast<int64_t>(items.size()));
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
  HEDDLE_CHECK(to.empty() || done <= static_cast<size_t>(kMaxBytes) / to.size(),
               "a replacement of more than ", kMaxBytes, " bytes");
  call.interpreter.budget.spend_bytes(s.size() + done * to.size());
  return text::replace(s, from, to, limit);
}

Value join(Call& call) {
  refuse_safe(call, "join");
  std::string result;
  bool is_first = true;
  for (const Value& item : call.interpreter.iterate(*call.arg(0))) {
    HEDDLE_CHECK(item.is_string(), "join takes strings, ", item.type_name(), " is given");
    if (!is_first) result += subject(call);
    call.interpreter.budget.spend_bytes(item.bytes().size());
    result += item.bytes();
    is_first = false;
  }
  return result;
}

Value remove_prefix(Call& call) {
  const std::string &s = subject(call), &prefix = call.text(0);
  return like_self(call, s.starts_with(prefix) ? s.substr(prefix.size()) : s);
}
Value remove_suffix(Call& call) {
  const std::string &s = subject(call), &suffix = call.text(0);
  return like_self(call, s.ends_with(suffix) ? s.substr(0, s.size() - suffix.size()) : s);
}

Value get(Call& call) {
  HEDDLE_CHECK(call.arg(0)->dict() == nullptr && !call.arg(0)->is_list(), "get with a ",
               call.arg(0)->type_name(), " as key");
  const Value* value = find_key(call.interpreter.budget, *call.self.dict(), *call.arg(0));
  if (value != nullptr) return *value;
  return call.arg(1) == nullptr ? Value(None{}) : *call.arg(1);
}

Value view(Call& call, Sequence::Kind kind) {
  const auto& entries = call.self.dict()->entries;
  call.interpreter.budget.spend_bytes(entries.size() * 3 * sizeof(Value));
  Values items;
  items.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    if (kind == Sequence::Kind::kItems) {
      items.push_back(Value::tuple({key, value}));
    } else {
      items.push_back(kind == Sequence::Kind::kKeys ? key : value);
    }
  }
  return Value::sequence(kind, std::move(items));
}
Value items(Call& call) { return view(call, Sequence::Kind::kItems); }
Value keys(Call& call) { return view(call, Sequence::Kind::kKeys); }
Value values(Call& call) { return view(call, Sequence::Kind::kValues); }

bool is_item(Call& call, const Value& item) {
  return item.is_same(*call.arg(0)) || is_equal(call.interpreter.budget, item, *call.arg(0));
}
Value index_of(Call& call) {
  const Values& items = call.self.sequence()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (is_item(call, items[i])) return static_cast<int64_t>(i);
  }
  throw_error(ErrorCode::kInvalidArgument, "index of a value that is not in the ",
              call.self.type_name());
}
Value count_items(Call& call) {
  const Values& items = call.self.sequence()->items;
  return static_cast<int64_t>(std::count_if(
      items.begin(), items.end(), [&](const Value& item) { return is_item(call, item); }));
}

Value cycle(Call& call) {
  const Values& args = call.raw.positional;
  HEDDLE_CHECK(!args.empty() && call.raw.named.empty(), "loop.cycle takes values");
  return args[static_cast<size_t>(call.self.loop()->index0) % args.size()];
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
    {.name = "count", .call = count, .parameters = {"sub", "start", "end"}, .required = 1},
    {.name = "join", .call = join, .parameters = {"iterable"}, .required = 1},
    {.name = "removeprefix", .call = remove_prefix, .parameters = {"prefix"}, .required = 1},
    {.name = "removesuffix", .call = remove_suffix, .parameters = {"suffix"}, .required = 1},
};
constexpr Callable kDictMethods[] = {
    {.name = "get", .call = get, .parameters = {"key", "default"}, .required = 1},
    {.name = "items", .call = items},
    {.name = "keys", .call = keys},
    {.name = "values", .call = values},
};
constexpr Callable kSequenceMethods[] = {
    {.name = "index", .call = index_of, .parameters = {"value"}, .required = 1},
    {.name = "count", .call = count_items, .parameters = {"value"}, .required = 1},
};
constexpr Callable kLoopMethods[] = {{.name = "cycle", .call = cycle, .is_variadic = true}};

// Methods that the immutable sandbox of jinja2 hides.
constexpr std::string_view kMutatingDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kMutatingList[] = {"append", "clear", "pop",    "reverse",
                                              "insert", "sort",  "extend", "remove"};

// What else Python's types have.
constexpr std::string_view kMissingString[] = {
    "casefold",    "center",  "encode",     "expandtabs", "format",    "format_map",   "index",
    "isalnum",     "isalpha", "isascii",    "isdecimal",  "isdigit",   "isidentifier", "isnumeric",
    "isprintable", "isspace", "istitle",    "ljust",      "maketrans", "partition",    "rfind",
    "rindex",      "rjust",   "rpartition", "swapcase",   "translate", "zfill"};
constexpr std::string_view kMissingInteger[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
    "from_bytes",       "imag",      "numerator",  "real",      "to_bytes"};
constexpr std::string_view kMissingFloat[] = {
    "as_integer_ratio", "conjugate", "fromhex", "hex", "imag", "is_integer", "real"};

template <size_t kSize>
bool is_in(const std::string_view (&names)[kSize], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

const Callable* find_method(const Value& self, std::string_view name) {
  if (self.is_string()) return find_in(kStringMethods, name);
  if (self.dict() != nullptr) return find_in(kDictMethods, name);
  if (self.loop() != nullptr) return find_in(kLoopMethods, name);
  const bool has_methods =
      self.is_list() || self.is_tuple() || self.is_sequence(Sequence::Kind::kRange);
  return has_methods ? find_in(kSequenceMethods, name) : nullptr;
}

bool is_method_name(std::string_view name) {
  return find_in(kStringMethods, name) != nullptr || find_in(kDictMethods, name) != nullptr ||
         find_in(kSequenceMethods, name) != nullptr || find_in(kLoopMethods, name) != nullptr ||
         is_in(kMutatingDict, name) || is_in(kMutatingList, name);
}

bool is_mutating(const Value& self, std::string_view name) {
  return (self.dict() != nullptr && is_in(kMutatingDict, name)) ||
         (self.is_list() && is_in(kMutatingList, name));
}

bool is_missing_attribute(const Value& self, std::string_view name) {
  if (self.is_string()) return is_in(kMissingString, name);
  if (self.dict() != nullptr) return name == "copy" || name == "fromkeys";
  if (self.is_list()) return name == "copy";
  if (self.is_integral()) return is_in(kMissingInteger, name);
  if (self.is_float()) return is_in(kMissingFloat, name);
  if (self.loop() != nullptr) return name == "changed";
  return self.macro() != nullptr || self.function() != nullptr || self.method() != nullptr ||
         self.iterator() != nullptr ||
         (self.sequence() != nullptr && self.sequence()->kind >= Sequence::Kind::kRange);
}

}  // namespace heddle::model
