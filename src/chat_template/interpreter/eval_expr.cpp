// Expressions.
#include <algorithm>
#include <iterator>

#include "chat_template/interpreter/eval.h"
#include "chat_template/interpreter/operators.h"
#include "chat_template/values/format.h"
#include "files/printable.h"

namespace heddle::chat_template {

Value Interpreter::evaluate(const Expr& expr) {
  HEDDLE_CHECK(depth_ < kMaxEvaluationDepth, "macros call one another too deep");
  ++depth_;  // not taken back when an exception leaves: nothing is evaluated after one
  line_ = expr.line;
  budget.spend_steps(1);
  Value value = evaluate_node(expr);
  --depth_;
  return value;
}

Value Interpreter::evaluate_node(const Expr& expr) {
  switch (expr.kind) {
    case Expr::Kind::kLiteral: return expr.value;
    case Expr::Kind::kName: return lookup(expr);
    case Expr::Kind::kList: return Value::list(evaluate_children(expr));
    case Expr::Kind::kTuple: return Value::tuple(evaluate_children(expr));
    case Expr::Kind::kDict: return evaluate_dict(expr);
    case Expr::Kind::kUnary: {
      const Value operand = evaluate(*expr.children[0]);
      line_ = expr.line;
      if (expr.operators[0] == "not") return !operand.is_true();
      return apply_sign(expr.operators[0], operand);
    }
    case Expr::Kind::kBinary: {
      const Value left = evaluate(*expr.children[0]), right = evaluate(*expr.children[1]);
      line_ = expr.line;
      return apply_binary(budget, expr.operators[0], left, right);
    }
    case Expr::Kind::kLogical: return evaluate_logical(expr);
    case Expr::Kind::kCompare: return evaluate_compare(expr);
    case Expr::Kind::kConcat: return evaluate_concat(expr);
    case Expr::Kind::kConditional: return evaluate_conditional(expr);
    case Expr::Kind::kAttribute: {
      const Value object = evaluate(*expr.children[0]);
      line_ = expr.line;
      return attribute(object, expr.text);
    }
    case Expr::Kind::kItem: {
      const Value object = evaluate(*expr.children[0]), key = evaluate(*expr.children[1]);
      line_ = expr.line;
      return item(object, key);
    }
    case Expr::Kind::kSlice: return evaluate_slice(expr);
    case Expr::Kind::kFilter:
    case Expr::Kind::kTest:
    case Expr::Kind::kCall: return evaluate_call(expr);
  }
  return {};
}

/// An undefined value that a template can keep.
Value Interpreter::missing(std::string why) {
  budget.spend_bytes(why.size() + kObjectBytes);
  return Value::undefined(std::move(why));
}

Value Interpreter::lookup(const Expr& expr) {
  if (const Value* value = scope_->find(budget, expr.name)) return *value;
  const auto& given = context_[static_cast<size_t>(expr.name)];
  if (given) return *given;
  if (const Callable* function = find_function(expr.text)) return function;
  for (const char* name : {"cycler", "joiner", "lipsum"}) {  // what else jinja2 has
    if (expr.text == name) throw_error(ErrorCode::kUnsupported, "function ", name);
  }
  return missing(files::quote(expr.text) + " is undefined");
}

Values Interpreter::evaluate_children(const Expr& expr) {
  budget.spend_bytes(expr.children.size(), sizeof(Value));
  budget.spend_bytes(kObjectBytes);
  Values values;
  values.reserve(expr.children.size());
  for (const ExprPtr& child : expr.children) values.push_back(evaluate(*child));
  return values;
}

Value Interpreter::evaluate_dict(const Expr& expr) {
  Values values = evaluate_children(expr);
  line_ = expr.line;
  budget.spend_bytes(values.size(), sizeof(Value));
  std::vector<std::pair<Value, Value>> entries;
  ValueIndex index(budget);
  for (size_t i = 0; i < values.size(); i += 2) {
    const Value& key = values[i];
    HEDDLE_CHECK(key.dict() == nullptr && !key.is_list(), "a ", key.type_name(),
                 " as key of a dict");
    const size_t place = index.add(key);
    if (place == entries.size()) {
      entries.emplace_back(key, std::move(values[i + 1]));
    } else {
      entries[place].second = std::move(values[i + 1]);
    }
  }
  return Value::dict(std::move(entries));
}

Value Interpreter::evaluate_logical(const Expr& expr) {
  Value left = evaluate(*expr.children[0]);
  const bool is_decided = left.is_true() == (expr.operators[0] == "or");
  return is_decided ? left : evaluate(*expr.children[1]);
}

Value Interpreter::evaluate_compare(const Expr& expr) {
  Value left = evaluate(*expr.children[0]);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = evaluate(*expr.children[i + 1]);
    line_ = expr.line;
    if (!compare(expr.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

bool Interpreter::compare(const std::string& op, const Value& a, const Value& b) {
  if (op == "in") return contains(b, a);
  if (op == "not in") return !contains(b, a);
  if (op == "==") return is_equal(budget, a, b);
  if (op == "!=") return !is_equal(budget, a, b);
  if (op == "<") return is_less(budget, a, b);
  if (op == ">") return is_less(budget, b, a);
  const bool is_strict = op == "<=" ? is_less(budget, a, b) : is_less(budget, b, a);
  return is_strict || is_equal(budget, a, b);
}

Value Interpreter::evaluate_concat(const Expr& expr) {
  const Values values = evaluate_children(expr);
  line_ = expr.line;
  BudgetedText result(budget);
  for (const Value& value : values) result += to_text(budget, value);
  return result.take();
}

Value Interpreter::evaluate_conditional(const Expr& expr) {
  if (evaluate(*expr.children[0]).is_true()) return evaluate(*expr.children[1]);
  if (expr.children.size() > 2) return evaluate(*expr.children[2]);
  return missing("the inline if-expression on line " + std::to_string(expr.line) +
                 " evaluated to false and no else section was defined.");
}

Value Interpreter::evaluate_slice(const Expr& expr) {
  const Value object = evaluate(*expr.children[0]);
  Values parts(3);
  const Value* given[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (expr.children[i + 1] == nullptr) continue;
    parts[i] = evaluate(*expr.children[i + 1]);
    given[i] = &parts[i];
  }
  line_ = expr.line;
  return apply_slice(budget, object, given[0], given[1], given[2]);
}

/// The entries of a dict after **.
void Interpreter::add_keywords(const Value& more, Arguments& arguments) {
  HEDDLE_CHECK(more.dict() != nullptr, "** takes a dict, ", more.type_name(), " is given");
  for (const auto& [key, value] : more.dict()->entries) {
    HEDDLE_CHECK(key.is_string(), "a ", key.type_name(), " as the name of an argument");
    HEDDLE_CHECK(arguments.named.size() < kMaxArguments, "a call with more than ", kMaxArguments,
                 " arguments");
    budget.spend_steps(1 + arguments.named.size());
    budget.spend_bytes(key.bytes().size() + kObjectBytes);
    for (const auto& [name, given] : arguments.named) {
      HEDDLE_CHECK(!is_equal_text(budget, name, key.bytes()), "argument ",
                   files::quote(key.bytes()), " is given twice");
    }
    arguments.named.emplace_back(key.bytes(), value);
  }
}

Arguments Interpreter::evaluate_arguments(const Expr& expr) {
  Arguments arguments;
  const size_t num_positional = expr.children.size() - expr.keywords.size();
  for (size_t i = 1; i < expr.children.size(); ++i) {
    Value value = evaluate(*expr.children[i]);
    if (i < num_positional) {
      arguments.positional.push_back(std::move(value));
    } else {
      budget.spend_bytes(expr.keywords[i - num_positional].size() + kObjectBytes);
      arguments.named.emplace_back(expr.keywords[i - num_positional], std::move(value));
    }
  }
  if (expr.more_arguments != nullptr) {
    Values more = iterate(evaluate(*expr.more_arguments));
    budget.spend_bytes(more.size(), sizeof(Value));
    arguments.positional.insert(arguments.positional.end(), std::make_move_iterator(more.begin()),
                                std::make_move_iterator(more.end()));
  }
  if (expr.more_keywords != nullptr) add_keywords(evaluate(*expr.more_keywords), arguments);
  HEDDLE_CHECK(arguments.positional.size() + arguments.named.size() <= kMaxArguments,
               "a call with more than ", kMaxArguments, " arguments");
  return arguments;
}

Value Interpreter::evaluate_call(const Expr& expr) {
  if (expr.kind != Expr::Kind::kCall && expr.callable == nullptr) {
    throw_error(ErrorCode::kUnsupported, "unknown ",
                expr.kind == Expr::Kind::kFilter ? "filter " : "test ", files::quote(expr.text));
  }
  const Value first = evaluate(*expr.children[0]);
  Arguments arguments = evaluate_arguments(expr);
  line_ = expr.line;
  if (expr.kind == Expr::Kind::kCall) return call(first, std::move(arguments));
  return apply(*expr.callable, first, std::move(arguments));
}

Value Interpreter::call(const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) throw Error(ErrorCode::kInvalidArgument, callee.why_undefined());
  if (callee.macro() != nullptr) return call_macro(*callee.macro(), std::move(arguments));
  if (callee.loop() != nullptr) return call_loop(*callee.loop(), std::move(arguments));
  if (callee.method() != nullptr) {
    return apply(*callee.method()->method, callee.method()->self, std::move(arguments));
  }
  HEDDLE_CHECK(callee.function() != nullptr, "a ", callee.type_name(), " is called");
  return apply(*callee.function(), callee, std::move(arguments));
}

Value Interpreter::apply(const Callable& callable, const Value& self, Arguments arguments) {
  budget.spend_steps(1 + arguments.positional.size() + arguments.named.size());
  budget.spend_bytes(kObjectBytes);  // what it returns
  Call call(*this, self, std::move(arguments));
  call.bind(callable);
  return callable.call(call);
}

}  // namespace heddle::chat_template
