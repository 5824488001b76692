// Tests: what stands after `is`.
#include "chat_template/interpreter/eval.h"
#include "chat_template/interpreter/operators.h"
#include "chat_template/syntax/callable.h"
#include "chat_template/values/format.h"
#include "chat_template/values/text.h"

namespace heddle::chat_template {
namespace {

Value remainder(Call& call, const Value& divisor) {
  return apply_binary(call.interpreter.budget, "%", call.self, divisor);
}
bool is_number(Call& call, const Value& value, int64_t number) {
  return is_equal(call.interpreter.budget, value, number);
}
bool is_less_or_equal(Budget& budget, const Value& a, const Value& b) {
  return is_less(budget, a, b) || is_equal(budget, a, b);
}
bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.sequence() != nullptr ||
         value.dict() != nullptr || value.iterator() != nullptr || value.loop() != nullptr;
}
bool is_sequence(const Value& value) {  // has a length and items
  return value.is_undefined() || value.is_string() || value.dict() != nullptr ||
         (value.sequence() != nullptr && value.sequence()->kind <= SequenceValue::Kind::kRange);
}

Value is_divisible(Call& call) { return is_number(call, remainder(call, *call.arg(0)), 0); }
Value is_odd(Call& call) { return is_number(call, remainder(call, int64_t{2}), 1); }
Value is_even(Call& call) { return is_number(call, remainder(call, int64_t{2}), 0); }
Value is_lower_case(Call& call) {
  return text::is_lower(to_text(call.interpreter.budget, call.self));
}
Value is_upper_case(Call& call) {
  return text::is_upper(to_text(call.interpreter.budget, call.self));
}
Value equals(Call& call) { return is_equal(call.interpreter.budget, call.self, *call.arg(0)); }
Value differs(Call& call) { return !is_equal(call.interpreter.budget, call.self, *call.arg(0)); }
Value less(Call& call) { return is_less(call.interpreter.budget, call.self, *call.arg(0)); }
Value greater(Call& call) { return is_less(call.interpreter.budget, *call.arg(0), call.self); }
Value at_most(Call& call) {
  return is_less_or_equal(call.interpreter.budget, call.self, *call.arg(0));
}
Value at_least(Call& call) {
  return is_less_or_equal(call.interpreter.budget, *call.arg(0), call.self);
}

constexpr Callable plain(std::string_view name, Value (*test)(Call&)) {
  return {.name = name, .call = test};
}
constexpr Callable against(std::string_view name, Value (*test)(Call&)) {
  return {.name = name, .call = test, .parameters = {"other"}, .required = 1};
}

constexpr Callable kTests[] = {
    plain("defined", [](Call& c) -> Value { return !c.self.is_undefined(); }),
    plain("undefined", [](Call& c) -> Value { return c.self.is_undefined(); }),
    plain("none", [](Call& c) -> Value { return c.self.is_none(); }),
    plain("boolean", [](Call& c) -> Value { return c.self.is_bool(); }),
    plain("true", [](Call& c) -> Value { return c.self.is_bool() && c.self.as_bool(); }),
    plain("false", [](Call& c) -> Value { return c.self.is_bool() && !c.self.as_bool(); }),
    plain("integer", [](Call& c) -> Value { return c.self.is_int(); }),
    plain("float", [](Call& c) -> Value { return c.self.is_float(); }),
    plain("number", [](Call& c) -> Value { return c.self.is_number(); }),
    plain("string", [](Call& c) -> Value { return c.self.is_string(); }),
    plain("mapping", [](Call& c) -> Value { return c.self.dict() != nullptr; }),
    plain("sequence", [](Call& c) -> Value { return is_sequence(c.self); }),
    plain("iterable", [](Call& c) -> Value { return is_iterable(c.self); }),
    plain("callable", [](Call& c) -> Value { return c.self.is_callable(); }),
    plain("escaped",
          [](Call& c) -> Value { return c.self.is_string() && c.self.string()->is_safe; }),
    plain("odd", is_odd),
    plain("even", is_even),
    plain("lower", is_lower_case),
    plain("upper", is_upper_case),
    {.name = "divisibleby", .call = is_divisible, .parameters = {"num"}, .required = 1},
    against("sameas", [](Call& c) -> Value { return c.self.is_same(*c.arg(0)); }),
    {.name = "in",
     .call = [](Call& c) -> Value { return c.interpreter.contains(*c.arg(0), c.self); },
     .parameters = {"seq"},
     .required = 1},
    against("==", equals),
    against("eq", equals),
    against("equalto", equals),
    against("!=", differs),
    against("ne", differs),
    against("<", less),
    against("lt", less),
    against("lessthan", less),
    against(">", greater),
    against("gt", greater),
    against("greaterthan", greater),
    against("<=", at_most),
    against("le", at_most),
    against(">=", at_least),
    against("ge", at_least),
};

}  // namespace

Callables tests() { return kTests; }

}  // namespace heddle::chat_template
