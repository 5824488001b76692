// Global functions.
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
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  call.interpreter.budget.spend_bytes(items.size() * sizeof(Value));
  return Value::sequence(Sequence::Kind::kRange, std::move(items));
}

/// The attributes of namespace(...) and the entries of dict(...): a dict, then named values.
std::vector<std::pair<Value, Value>> named_values(Call& call, const char* function) {
  const Values& args = call.raw.positional;
  HEDDLE_CHECK(args.empty() || (args.size() == 1 && args[0].dict() != nullptr), function,
               " takes a dict and named values");
  std::vector<std::pair<Value, Value>> entries;
  if (!args.empty()) entries = args[0].dict()->entries;
  const size_t num_given = entries.size();
  for (auto& [name, value] : call.raw.named) {
    size_t i = 0;
    while (i < num_given && !is_equal(call.interpreter.budget, entries[i].first, name)) ++i;
    if (i < num_given) {
      entries[i].second = std::move(value);
    } else {
      entries.emplace_back(name, std::move(value));
    }
  }
  call.interpreter.budget.spend_bytes(entries.size() * 2 * sizeof(Value));
  return entries;
}

Value make_namespace(Call& call) {
  auto space = std::make_shared<Namespace>();
  for (auto& [name, value] : named_values(call, "namespace")) {
    if (value.holds_namespace()) throw_error(ErrorCode::kUnsupported, "a namespace in a namespace");
    HEDDLE_CHECK(name.is_string(), "namespace takes strings as names");
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
  std::string format;
  const std::string& given = call.text(0);
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
  std::string result(format.size() * 64 + 1, '\0');  // no directive of the C locale gives more
  call.interpreter.budget.spend_bytes(result.size());
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

const Callable* find_function(std::string_view name) { return find_in(kFunctions, name); }

}  // namespace heddle::chat_template
