// Runs a parsed template.
#pragma once

#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "chat_template/syntax/ast.h"
#include "chat_template/syntax/callable.h"
#include "chat_template/values/value.h"

namespace heddle::chat_template {

/// The variables of a block. Assignments go to the innermost scope, lookups end at the template's
/// own.
struct Scope {
  const Scope* parent = nullptr;
  std::vector<std::pair<NameId, Value>> variables;

  void assign(Budget& budget, NameId name, Value value);
  /// Null where neither this scope nor one around it has the name.
  [[nodiscard]] const Value* find(Budget& budget, NameId name) const;
};

/// The attribute of a namespace, null where there is none. Takes a step for each that it looks at.
Value* find_attribute(Budget& budget, Namespace& space, std::string_view name);

/// Throws for a name that transformers lets no namespace have.
void check_attribute_name(std::string_view name);

/// One render.
class Interpreter {
 public:
  Interpreter(const Program& program, const files::Json& variables,
              const std::function<std::time_t()>& clock);
  std::string run();
  /// Where the evaluation is, or was when it failed.
  [[nodiscard]] int line() const { return line_; }

  // What filters, tests and methods need.
  Budget budget;
  [[nodiscard]] std::time_t now() const { return clock_(); }
  /// object.name and object[key], as jinja2's sandbox resolves them.
  Value attribute(const Value& object, const std::string& name);
  Value item(const Value& object, const Value& key);
  /// Python's iter(): all there is to come; throws where the value cannot be iterated.
  Values iterate(const Value& value);
  /// Python's `in`.
  bool contains(const Value& container, const Value& member);
  Value call(const Value& callee, Arguments arguments);
  Value apply(const Callable& callable, const Value& self, Arguments arguments);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // Statements.
  Flow execute(const Body& body);
  Flow execute(const Stmt& statement);
  Flow execute_if(const Stmt& statement);
  Flow execute_for(const Stmt& statement);
  Flow run_loop(const Stmt& statement, Values all, int64_t depth0);
  void execute_call_block(const Stmt& statement);
  Flow execute_scope(const Stmt& statement);
  Flow execute_set_block(const Stmt& statement);
  Flow execute_filter_block(const Stmt& statement);
  Flow collect_block(const Stmt& statement, Value& text);
  Values select_items(const Stmt& statement, Values items);
  Value bind(const Macro& macro);
  void assign(const AssignTarget& target, Value value);
  void print(const Value& value);
  Value call_macro(const BoundMacro& bound, Arguments arguments);
  void give_parameters(const Macro& macro, Scope& scope, Arguments arguments,
                       std::vector<bool>& is_given);
  Value call_loop(const Loop& loop, Arguments arguments);

  // Expressions.
  Value evaluate(const Expr& expr);
  Value evaluate_node(const Expr& expr);
  Value missing(std::string why);
  Value lookup(const Expr& expr);
  Values evaluate_children(const Expr& expr);
  Value evaluate_dict(const Expr& expr);
  Value evaluate_logical(const Expr& expr);
  Value evaluate_compare(const Expr& expr);
  Value evaluate_concat(const Expr& expr);
  Value evaluate_conditional(const Expr& expr);
  Value evaluate_slice(const Expr& expr);
  Value evaluate_call(const Expr& expr);
  Arguments evaluate_arguments(const Expr& expr);
  void add_keywords(const Value& more, Arguments& arguments);
  bool compare(const std::string& op, const Value& a, const Value& b);

  const Program& program_;
  const std::function<std::time_t()>& clock_;
  std::vector<std::optional<Value>> context_;  // the caller's variables, by NameId
  Scope root_;
  Scope* scope_ = &root_;
  std::string output_;
  std::string* out_ =
      &output_;  // where text goes: the output, or a block or macro that collects it
  int line_ = 1;
  int depth_ = 0;
};

}  // namespace heddle::chat_template
