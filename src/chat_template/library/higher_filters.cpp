// Filters that apply another filter or a test to every item. Their results are generators in
// Python: they can be taken once, are true even when empty and have no length. Unlike there, all
// items are computed at once.
#include <functional>

#include "chat_template/interpreter/attribute_path.h"
#include "chat_template/interpreter/eval.h"
#include "chat_template/syntax/callable.h"
#include "files/printable.h"

namespace heddle::chat_template {
namespace {
namespace of_functions {

const Callable& callable_named(const Value& name, bool is_test) {
  HEDDLE_CHECK(name.is_string(), "the name of a ", is_test ? "test" : "filter", " is a ",
               name.type_name());
  const Callable* callable = is_test ? find_test(name.bytes()) : find_filter(name.bytes());
  if (callable == nullptr) {
    throw_error(ErrorCode::kUnsupported, "unknown ", is_test ? "test" : "filter", " ",
                files::quote(name.bytes()));
  }
  return *callable;
}

/// The arguments after the first `count`, for the filter or test that is applied.
Arguments arguments_after(Call& call, size_t count) {
  const auto& positional = call.raw.positional;
  call.interpreter.budget.spend_steps(positional.size());
  for (const auto& [name, value] : call.raw.named) {
    call.interpreter.budget.spend_bytes(name.size() + kObjectBytes);
  }
  return {Values(positional.begin() + static_cast<ptrdiff_t>(count), positional.end()),
          call.raw.named};
}

Value map_attribute(Call& call) {
  const Value *path = nullptr, *otherwise = nullptr;
  for (const auto& [name, value] : call.raw.named) {
    HEDDLE_CHECK(name == "attribute" || name == "default", "map takes no argument ",
                 files::quote(name));
    (name == "attribute" ? path : otherwise) = &value;
  }
  HEDDLE_CHECK(path != nullptr, "map needs a filter or an attribute");
  if (otherwise != nullptr && otherwise->is_none()) otherwise = nullptr;
  const AttributePath attribute(call.interpreter.budget, path);
  Values results;
  for (const Value& item : call.interpreter.iterate(call.self)) {
    results.push_back(attribute.of(call.interpreter, item, otherwise));
  }
  return Value::iterator(std::move(results));
}

Value map(Call& call) {
  if (!call.self.is_true()) return Value::iterator({});
  if (call.raw.positional.empty()) return map_attribute(call);
  const Callable& filter = callable_named(call.raw.positional[0], false);
  Values results;
  for (const Value& item : call.interpreter.iterate(call.self)) {
    results.push_back(call.interpreter.apply(filter, item, arguments_after(call, 1)));
  }
  return Value::iterator(std::move(results));
}

/// Items whose value (the item itself, or what the first argument leads to) passes the test, or
/// fails it.
Value filter_items(Call& call, bool by_attribute, bool is_wanted) {
  if (!call.self.is_true()) return Value::iterator({});
  const Values& positional = call.raw.positional;
  HEDDLE_CHECK(!by_attribute || !positional.empty(), "the attribute is missing");
  const AttributePath path(call.interpreter.budget, by_attribute ? &positional[0] : nullptr);
  const size_t place = by_attribute ? 1 : 0;
  const Callable* test =
      positional.size() > place ? &callable_named(positional[place], true) : nullptr;
  Values results;
  for (Value& item : call.interpreter.iterate(call.self)) {
    const Value value = path.of(call.interpreter, item);
    const bool passes =
        test == nullptr
            ? value.is_true()
            : call.interpreter.apply(*test, value, arguments_after(call, place + 1)).is_true();
    if (passes == is_wanted) results.push_back(std::move(item));
  }
  return Value::iterator(std::move(results));
}

Value select(Call& call) { return filter_items(call, false, true); }
Value reject(Call& call) { return filter_items(call, false, false); }
Value select_by_attribute(Call& call) { return filter_items(call, true, true); }
Value reject_by_attribute(Call& call) { return filter_items(call, true, false); }

constexpr Callable kFilters[] = {
    {.name = "map", .call = map, .is_variadic = true},
    {.name = "select", .call = select, .is_variadic = true},
    {.name = "reject", .call = reject, .is_variadic = true},
    {.name = "selectattr", .call = select_by_attribute, .is_variadic = true},
    {.name = "rejectattr", .call = reject_by_attribute, .is_variadic = true},
};

}  // namespace of_functions
}  // namespace

Callables higher_filters() { return of_functions::kFilters; }

}  // namespace heddle::chat_template
