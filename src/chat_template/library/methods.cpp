// Methods of dict, list, tuple and the loop variable, and which type has which.
#include <algorithm>

#include "chat_template/interpreter/eval.h"
#include "chat_template/syntax/callable.h"

namespace heddle::chat_template {
namespace {

Value get(Call& call) {
  HEDDLE_CHECK(call.arg(0)->dict() == nullptr && !call.arg(0)->is_list(), "get with a ",
               call.arg(0)->type_name(), " as key");
  const Value* value = find_key(call.interpreter.budget, *call.self.dict(), *call.arg(0));
  if (value != nullptr) return *value;
  return call.arg(1) == nullptr ? Value(None{}) : *call.arg(1);
}

Value view(Call& call, SequenceValue::Kind kind) {
  const auto& entries = call.self.dict()->entries;
  Budget& budget = call.interpreter.budget;
  budget.spend_bytes(entries.size(), sizeof(Value));
  if (kind == SequenceValue::Kind::kItems) {
    budget.spend_bytes(entries.size(), 2 * sizeof(Value) + kObjectBytes);
  }
  Values items;
  items.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    if (kind == SequenceValue::Kind::kItems) {
      items.push_back(Value::tuple({key, value}));
    } else {
      items.push_back(kind == SequenceValue::Kind::kKeys ? key : value);
    }
  }
  return Value::sequence(kind, std::move(items));
}
Value items(Call& call) { return view(call, SequenceValue::Kind::kItems); }
Value keys(Call& call) { return view(call, SequenceValue::Kind::kKeys); }
Value values(Call& call) { return view(call, SequenceValue::Kind::kValues); }

bool is_item(Call& call, const Value& item) {
  return is_same_or_equal(call.interpreter.budget, item, *call.arg(0));
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

/// Whether the arguments are others than those of the call before.
Value changed(Call& call) {
  HEDDLE_CHECK(call.raw.named.empty(), "loop.changed takes values");
  Loop& loop = *call.self.loop();
  call.interpreter.budget.spend_bytes(call.raw.positional.size(), sizeof(Value));
  const Value now = Value::tuple(call.raw.positional);
  if (now.holds_namespace()) {
    throw_error(ErrorCode::kUnsupported, "loop.changed of a namespace, loop or macro");
  }
  const bool is_same = loop.last_changed != nullptr &&
                       is_equal(call.interpreter.budget, Value(loop.last_changed), now);
  loop.last_changed = now.shared_sequence();
  return !is_same;
}

/// What nothing can change needs no copy.
Value copy(Call& call) { return call.self; }

constexpr Callable kDictMethods[] = {
    {.name = "get", .call = get, .parameters = {"key", "default"}, .required = 1},
    {.name = "items", .call = items},
    {.name = "keys", .call = keys},
    {.name = "values", .call = values},
    {.name = "copy", .call = copy},
};
constexpr Callable kSequenceMethods[] = {
    {.name = "index", .call = index_of, .parameters = {"value"}, .required = 1},
    {.name = "count", .call = count_items, .parameters = {"value"}, .required = 1},
};
constexpr Callable kListMethods[] = {{.name = "copy", .call = copy}};
constexpr Callable kLoopMethods[] = {{.name = "cycle", .call = cycle, .is_variadic = true},
                                     {.name = "changed", .call = changed, .is_variadic = true}};

// Methods that the immutable sandbox of jinja2 hides.
constexpr std::string_view kMutatingDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kMutatingList[] = {"append", "clear", "pop",    "reverse",
                                              "insert", "sort",  "extend", "remove"};

// What else Python's types have.
constexpr std::string_view kMissingString[] = {"casefold",     "encode",      "expandtabs",
                                               "isidentifier", "isprintable", "istitle",
                                               "maketrans",    "swapcase",    "translate"};
constexpr std::string_view kMissingInteger[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
    "from_bytes",       "imag",      "numerator",  "real",      "to_bytes"};
constexpr std::string_view kMissingFloat[] = {
    "as_integer_ratio", "conjugate", "fromhex", "hex", "imag", "is_integer", "real"};

template <size_t kSize>
bool is_in(const std::string_view (&names)[kSize], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

const Callable* find_string_method(std::string_view name) {
  for (const Callables table : {string_methods(), character_methods(), format_methods()}) {
    if (const Callable* method = find_in(table, name)) return method;
  }
  return nullptr;
}

}  // namespace

Callables dict_methods() { return kDictMethods; }
Callables sequence_methods() { return kSequenceMethods; }
Callables list_methods() { return kListMethods; }
Callables loop_methods() { return kLoopMethods; }

const Callable* find_method(const Value& self, std::string_view name) {
  if (self.is_string()) return find_string_method(name);
  if (self.dict() != nullptr) return find_in(kDictMethods, name);
  if (self.loop() != nullptr) return find_in(kLoopMethods, name);
  if (self.is_list() && find_in(kListMethods, name) != nullptr) return find_in(kListMethods, name);
  const bool has_methods =
      self.is_list() || self.is_tuple() || self.is_sequence(SequenceValue::Kind::kRange);
  return has_methods ? find_in(kSequenceMethods, name) : nullptr;
}

bool is_mutating(const Value& self, std::string_view name) {
  return (self.dict() != nullptr && is_in(kMutatingDict, name)) ||
         (self.is_list() && is_in(kMutatingList, name));
}

bool is_missing_attribute(const Value& self, std::string_view name) {
  if (self.is_string()) return is_in(kMissingString, name);
  if (self.dict() != nullptr) return name == "fromkeys";
  if (self.is_integral()) return is_in(kMissingInteger, name);
  if (self.is_float()) return is_in(kMissingFloat, name);
  return self.macro() != nullptr || self.function() != nullptr || self.method() != nullptr ||
         self.iterator() != nullptr ||
         (self.sequence() != nullptr && self.sequence()->kind >= SequenceValue::Kind::kRange);
}

}  // namespace heddle::chat_template
