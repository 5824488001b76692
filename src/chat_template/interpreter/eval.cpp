// Statements, and what values are made of for them.
#include "chat_template/interpreter/eval.h"

#include "chat_template/syntax/temporarily.h"
#include "chat_template/values/format.h"
#include "files/json_value.h"
#include "files/printable.h"

namespace heddle::chat_template {

namespace {

/// So many variables are looked through for one step: nothing for a template of usual size.
constexpr size_t kVariablesPerStep = 16;

}  // namespace

void Scope::assign(Budget& budget, NameId name, Value value) {
  budget.spend_steps(variables.size() / kVariablesPerStep);
  for (auto& [known, current] : variables) {
    if (known == name) {
      current = std::move(value);
      return;
    }
  }
  budget.spend_bytes(sizeof(variables[0]));
  variables.emplace_back(name, std::move(value));
}

const Value* Scope::find(Budget& budget, NameId name) const {
  size_t num_variables = 0;
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    num_variables += scope->variables.size();
  }
  budget.spend_steps(num_variables / kVariablesPerStep);
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    for (const auto& [known, value] : scope->variables) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

Value* find_attribute(Budget& budget, Namespace& space, std::string_view name) {
  for (auto& [known, value] : space.attributes) {
    budget.spend_steps(1);
    if (is_equal_text(budget, known, name)) return &value;
  }
  return nullptr;
}

void check_attribute_name(std::string_view name) {
  HEDDLE_CHECK(!name.starts_with('_'), "a namespace has no attribute ", files::quote(name),
               ": its name begins with an underscore");
}

Interpreter::Interpreter(const Program& program, const files::Json& variables,
                         const std::function<std::time_t()>& clock)
    : program_(program), clock_(clock) {
  HEDDLE_CHECK(variables.is_object(), "the variables are no object");
  for (const std::string& name : program.names) {
    const files::Json* const found = files::find_member(variables, name);
    context_.push_back(found == nullptr ? std::nullopt : std::optional(Value::from_json(*found)));
  }
}

std::string Interpreter::run() {
  execute(program_.body);
  return std::move(output_);
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  const Temporarily depth(depth_, depth_ + 1);
  HEDDLE_CHECK(depth_ <= kMaxEvaluationDepth, "macros call one another too deep");
  for (const Stmt& statement : body) {
    line_ = statement.line;
    budget.spend_steps(1);
    const Flow flow = execute(statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Stmt& statement) {
  switch (statement.kind) {
    case Stmt::Kind::kText:
      budget.spend_bytes(statement.text.size());
      *out_ += statement.text;
      break;
    case Stmt::Kind::kOutput: print(evaluate(*statement.expr)); break;
    case Stmt::Kind::kIf: return execute_if(statement);
    case Stmt::Kind::kFor: return execute_for(statement);
    case Stmt::Kind::kSet: assign(statement.target, evaluate(*statement.expr)); break;
    case Stmt::Kind::kSetBlock: return execute_set_block(statement);
    case Stmt::Kind::kFilterBlock: return execute_filter_block(statement);
    case Stmt::Kind::kMacro:
      scope_->assign(budget, statement.macro->id, bind(*statement.macro));
      break;
    case Stmt::Kind::kCallBlock: execute_call_block(statement); break;
    case Stmt::Kind::kScope: return execute_scope(statement);
    case Stmt::Kind::kBreak: return Flow::kBreak;
    case Stmt::Kind::kContinue: return Flow::kContinue;
  }
  return Flow::kNext;
}

void Interpreter::print(const Value& value) { *out_ += to_text(budget, value); }

Interpreter::Flow Interpreter::execute_if(const Stmt& statement) {
  for (const Stmt::Clause& clause : statement.clauses) {
    if (evaluate(*clause.condition).is_true()) return execute(clause.body);
  }
  return execute(statement.otherwise);
}

Value Interpreter::bind(const Macro& macro) {
  budget.spend_bytes(kObjectBytes);
  return std::make_shared<const BoundMacro>(BoundMacro{&macro, scope_, scope_ != &root_});
}

void Interpreter::execute_call_block(const Stmt& statement) {
  const Value callee = evaluate(*statement.expr->children[0]);
  Arguments arguments = evaluate_arguments(*statement.expr);
  line_ = statement.expr->line;
  budget.spend_bytes(kObjectBytes);
  arguments.named.emplace_back("caller", bind(*statement.macro));
  print(call(callee, std::move(arguments)));
}

/// What a for goes through: the items for which its condition holds.
Values Interpreter::select_items(const Stmt& statement, Values items) {
  if (statement.condition == nullptr) return items;
  Values selected;
  for (Value& item : items) {
    Scope scope{.parent = scope_, .variables = {}};
    const Temporarily inside(scope_, &scope);
    assign(statement.target, item);
    if (evaluate(*statement.condition).is_true()) selected.push_back(std::move(item));
  }
  return selected;
}

Interpreter::Flow Interpreter::execute_for(const Stmt& statement) {
  return run_loop(statement, iterate(evaluate(*statement.expr)), 0);
}

/// loop(items) in a recursive for: what the loop prints for them.
Value Interpreter::call_loop(const Loop& loop, Arguments arguments) {
  HEDDLE_CHECK(loop.recursive != nullptr, "a loop that is not recursive is called");
  HEDDLE_CHECK(arguments.positional.size() == 1 && arguments.named.empty(),
               "a recursive loop takes one argument");
  budget.spend_bytes(kObjectBytes);
  std::string text;
  const int line = line_;
  const Temporarily inside(scope_, loop.scope);
  const Temporarily out(out_, &text);
  run_loop(*loop.recursive, iterate(arguments.positional[0]), loop.depth0 + 1);
  line_ = line;
  return text;
}

Interpreter::Flow Interpreter::run_loop(const Stmt& statement, Values all, int64_t depth0) {
  const Value items = Value::list(select_items(statement, std::move(all)));
  budget.spend_bytes(2 * kObjectBytes);  // the list and the loop
  const auto loop =
      std::make_shared<Loop>(Loop{.items = items.shared_sequence(),
                                  .depth0 = depth0,
                                  .recursive = statement.is_recursive ? &statement : nullptr,
                                  .scope = scope_});
  bool is_complete =
      false;  // jinja2 runs `else` where no pass reached its end, be it for break or continue
  for (const Value& item : items.sequence()->items) {
    line_ = statement.line;
    budget.spend_steps(1);
    Scope scope{.parent = scope_, .variables = {}};
    const Temporarily inside(scope_, &scope);
    scope.assign(budget, kLoopName, loop);
    assign(statement.target, item);
    const Flow flow = execute(statement.body);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNext) is_complete = true;
    ++loop->index0;
  }
  if (is_complete || statement.otherwise.empty()) return Flow::kNext;
  Scope scope{.parent = scope_, .variables = {}};
  const Temporarily inside(scope_, &scope);
  return execute(statement.otherwise);
}

Interpreter::Flow Interpreter::execute_scope(const Stmt& statement) {
  const Value values = statement.expr == nullptr ? Value::tuple({}) : evaluate(*statement.expr);
  Scope scope{.parent = scope_, .variables = {}};
  const Temporarily inside(scope_, &scope);
  assign(statement.target, values);
  return execute(statement.body);
}

/// What the body prints, through the filters where there are some.
Interpreter::Flow Interpreter::collect_block(const Stmt& statement, Value& text) {
  budget.spend_bytes(kObjectBytes);
  std::string collected;
  Scope scope{.parent = scope_, .variables = {}};
  const Temporarily inside(scope_, &scope);
  const Temporarily out(out_, &collected);
  const Flow flow = execute(statement.body);
  if (flow != Flow::kNext) return flow;
  text = std::move(collected);
  if (statement.expr == nullptr) return Flow::kNext;
  scope.assign(budget, kBlockText, std::move(text));
  text = evaluate(*statement.expr);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_set_block(const Stmt& statement) {
  Value text;
  const Flow flow = collect_block(statement, text);
  if (flow == Flow::kNext) assign(statement.target, std::move(text));
  return flow;
}

Interpreter::Flow Interpreter::execute_filter_block(const Stmt& statement) {
  Value text;
  const Flow flow = collect_block(statement, text);
  if (flow == Flow::kNext) print(text);
  return flow;
}

void Interpreter::assign(const AssignTarget& target, Value value) {
  if (target.kind == AssignTarget::Kind::kName) {
    scope_->assign(budget, target.name, std::move(value));
  } else if (target.kind == AssignTarget::Kind::kAttribute) {
    const Value* object = scope_->find(budget, target.name);
    Namespace* space = object == nullptr ? nullptr : object->name_space();
    HEDDLE_CHECK(space != nullptr, "an attribute can be assigned only to a namespace");
    // Namespaces are the only values that change, so only through them a value could come to hold
    // itself.
    if (value.holds_namespace()) throw_error(ErrorCode::kUnsupported, "a namespace in a namespace");
    check_attribute_name(target.attribute);
    if (Value* known = find_attribute(budget, *space, target.attribute)) {
      *known = std::move(value);
      return;
    }
    budget.spend_bytes(target.attribute.size() + kObjectBytes);
    space->attributes.emplace_back(target.attribute, std::move(value));
  } else {
    const Values items = iterate(value);
    HEDDLE_CHECK(items.size() == target.items.size(), items.size(), " values are assigned to ",
                 target.items.size(), " names");
    for (size_t i = 0; i < items.size(); ++i) assign(target.items[i], items[i]);
  }
}

/// Gives each parameter its argument, and `varargs`, `kwargs` and `caller` what is left, where the
/// macro uses them.
void Interpreter::give_parameters(const Macro& macro, Scope& scope, Arguments arguments,
                                  std::vector<bool>& is_given) {
  const size_t num_parameters = macro.parameters.size(),
               num_positional = arguments.positional.size();
  HEDDLE_CHECK(num_positional <= num_parameters || macro.has_varargs, "macro ",
               files::quote(macro.name), " takes ", num_parameters, " arguments, ", num_positional,
               " are given");
  for (size_t i = 0; i < num_parameters; ++i) {
    is_given[i] = i < num_positional;
    budget.spend_steps(1);
    scope.assign(budget, macro.parameters[i].name,
                 is_given[i] ? std::move(arguments.positional[i])
                             : missing("parameter " + files::quote(macro.parameters[i].text) +
                                       " was not provided"));
  }
  if (macro.has_caller) scope.assign(budget, kCaller, missing("No caller defined"));
  std::vector<std::pair<Value, Value>> others;
  for (auto& [name, value] : arguments.named) {
    size_t i = num_positional;
    budget.spend_steps(num_parameters);
    while (i < num_parameters && !is_equal_text(budget, macro.parameters[i].text, name)) ++i;
    if (i < num_parameters) {
      is_given[i] = true;
      scope.assign(budget, macro.parameters[i].name, std::move(value));
    } else if (macro.has_caller && name == "caller") {
      if (!value.is_none()) scope.assign(budget, kCaller, std::move(value));
    } else {
      HEDDLE_CHECK(macro.has_kwargs && name != "caller", "macro ", files::quote(macro.name),
                   " takes no argument ", files::quote(name));
      budget.spend_bytes(name.size() + sizeof(others[0]) + kObjectBytes);
      others.emplace_back(std::move(name), std::move(value));
    }
  }
  if (macro.has_kwargs) scope.assign(budget, kKwargs, Value::dict(std::move(others)));
  if (!macro.has_varargs) return;
  const size_t num_more = num_positional > num_parameters ? num_positional - num_parameters : 0;
  budget.spend_bytes(num_more, sizeof(Value));
  const auto end = arguments.positional.end();
  scope.assign(budget, kVarargs, Value::tuple(Values(end - static_cast<ptrdiff_t>(num_more), end)));
}

Value Interpreter::call_macro(const BoundMacro& bound, Arguments arguments) {
  const Macro& macro = *bound.macro;
  Scope scope{.parent = bound.scope, .variables = {}};
  std::vector<bool> is_given(macro.parameters.size());
  give_parameters(macro, scope, std::move(arguments), is_given);
  budget.spend_bytes(kObjectBytes);
  std::string text;
  const int line = line_;
  const Temporarily inside(scope_, &scope);
  const Temporarily out(out_, &text);
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    if (is_given[i] || parameter.otherwise == nullptr) continue;
    scope.assign(budget, parameter.name, evaluate(*parameter.otherwise));
  }
  execute(macro.body);
  line_ = line;
  return text;
}

}  // namespace heddle::chat_template
