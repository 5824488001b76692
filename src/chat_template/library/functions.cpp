// Global functions.
#include <algorithm>
#include <ctime>

#include "chat_template/interpreter/eval.h"
#include "chat_template/syntax/callable.h"
#include "chat_template/values/format.h"

namespace heddle::chat_template {
namespace {

Value range(Call& call) {
  const Values& args = call.raw.positional;
  HEDDLE_CHECK(call.raw.named.empty() && !args.empty() && args.size() <= 3,
               "range takes one to three integers");
  for (const Value& arg : args) {
    if (arg.is_undefined()) throw Error(ErrorCode::kInvalidArgument, arg.why_undefined());
    HEDDLE_CHECK(arg.is_integral(), "range takes integers, ", arg.type_name(), " is given");
  }
  const int64_t start = args.size() > 1 ? args[0].as_int() : 0;
  const int64_t stop = args[args.size() > 1 ? 1 : 0].as_int();
  const int64_t step = args.size() > 2 ? args[2].as_int() : 1;
  HEDDLE_CHECK(step != 0, "range with step 0");
  Values items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    HEDDLE_CHECK(items.size() < static_cast<size_t>(kMaxRangeLength), "a range of more than ",
                 kMaxRangeLength, " integers");
    call.interpreter.budget.spend_bytes(sizeof(Value));
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::sequence(SequenceValue::Kind::kRange, std::move(items));
}

/// The attributes of namespace(...) and the entries of dict(...): a dict, then named values.
std::vector<std::pair<Value, Value>> named_values(Call& call, const char* function) {
  const Values& args = call.raw.positional;
  HEDDLE_CHECK(args.empty() || (args.size() == 1 && args[0].dict() != nullptr), function,
               " takes a dict and named values");
  Budget& budget = call.interpreter.budget;
  std::vector<std::pair<Value, Value>> entries;
  if (!args.empty()) {
    budget.spend_bytes(args[0].dict()->entries.size(), sizeof(entries[0]));
    entries = args[0].dict()->entries;
  }
  const auto num_given = static_cast<ptrdiff_t>(entries.size());
  for (auto& [name, value] : call.raw.named) {
    budget.spend_bytes(name.size() + kObjectBytes);
    const Value key = name;
    const auto end = entries.begin() + num_given;
    const auto given = std::find_if(entries.begin(), end, [&](const auto& entry) {
      return is_equal(budget, entry.first, key);
    });
    if (given != end) {
      given->second = std::move(value);
    } else {
      budget.spend_bytes(sizeof(entries[0]));
      entries.emplace_back(key, std::move(value));
    }
  }
  return entries;
}

Value make_namespace(Call& call) {
  auto space = std::make_shared<Namespace>();
  for (auto& [name, value] : named_values(call, "namespace")) {
    if (value.holds_namespace()) throw_error(ErrorCode::kUnsupported, "a namespace in a namespace");
    HEDDLE_CHECK(name.is_string(), "namespace takes strings as names");
    check_attribute_name(name.bytes());
    call.interpreter.budget.spend_bytes(name.bytes().size() + kObjectBytes);
    space->attributes.emplace_back(name.bytes(), std::move(value));
  }
  return space;
}

Value make_dict(Call& call) { return Value::dict(named_values(call, "dict")); }

Value raise_exception(Call& call) {
  throw Error(ErrorCode::kInvalidArgument, to_text(call.interpreter.budget, *call.arg(0)));
}

/// Python's strftime of a time without a zone, whose %z and %Z are empty.
Value strftime_now(Call& call) {
  const std::string& given = call.text(0);
  // No directive of the C locale gives more than 64 bytes.
  const auto num_directives = static_cast<size_t>(std::count(given.begin(), given.end(), '%'));
  const size_t longest = given.size() + num_directives * 64 + 1;
  call.interpreter.budget.spend_bytes(given.size() + longest);
  std::string format;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] != '%') {
      format += given[i];
      continue;
    }
    const char directive = ++i < given.size() ? given[i] : '\0';
    if (std::string_view("zZ").find(directive) != std::string_view::npos) continue;
    if (std::string_view("aAbBcCdDeFGgHhIjklMmnpPrRsSTtuUVwWxXyY%-").find(directive) ==
        std::string_view::npos) {
      throw_error(ErrorCode::kUnsupported, "strftime_now with %",
                  std::string(directive != '\0', directive));
    }
    format += '%';
    format += directive;
  }
  const std::time_t now = call.interpreter.now();
  std::tm local{};
  localtime_r(&now, &local);
  std::string result(longest, '\0');
  result.resize(std::strftime(result.data(), result.size(), format.c_str(), &local));
  return result;
}

constexpr Callable kFunctions[] = {
    {.name = "range", .call = range, .is_variadic = true},
    {.name = "namespace", .call = make_namespace, .is_variadic = true},
    {.name = "dict", .call = make_dict, .is_variadic = true},
    {.name = "raise_exception", .call = raise_exception, .parameters = {"message"}, .required = 1},
    {.name = "strftime_now", .call = strftime_now, .parameters = {"format"}, .required = 1},
};

}  // namespace

Callables functions() { return kFunctions; }

}  // namespace heddle::chat_template
