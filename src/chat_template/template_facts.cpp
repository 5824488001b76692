#include "chat_template/template_facts.h"

#include <functional>
#include <set>
#include <string_view>

#include "chat_template/syntax/ast.h"

namespace heddle::chat_template {
namespace {

/// What Mistral's templates raise where the id of a call has another length.
constexpr std::string_view kShortIds = "alphanumeric strings with length";

using OnExpr = std::function<void(const Expr&)>;
using OnStmt = std::function<void(const Stmt&)>;

/// Calls `on` for the expression and all that are inside it.
void walk(const Expr* expr, const OnExpr& on) {
  if (expr == nullptr) return;
  on(*expr);
  for (const ExprPtr& child : expr->children) walk(child.get(), on);
  walk(expr->more_arguments.get(), on);
  walk(expr->more_keywords.get(), on);
}

void walk(const Body& body, const OnStmt& on_stmt, const OnExpr& on_expr) {
  for (const Stmt& stmt : body) {
    on_stmt(stmt);
    walk(stmt.expr.get(), on_expr);
    walk(stmt.condition.get(), on_expr);
    for (const Stmt::Clause& clause : stmt.clauses) {
      walk(clause.condition.get(), on_expr);
      walk(clause.body, on_stmt, on_expr);
    }
    walk(stmt.body, on_stmt, on_expr);
    walk(stmt.otherwise, on_stmt, on_expr);
    if (stmt.macro == nullptr) continue;
    for (const Parameter& parameter : stmt.macro->parameters) {
      walk(parameter.otherwise.get(), on_expr);
    }
    walk(stmt.macro->body, on_stmt, on_expr);
  }
}

/// The variables that hold one thing, wherever they are assigned.
class Holders {
 public:
  explicit Holders(const Program& program) : program_(program) {}

  /// Whether the expression is all or some of the messages: `messages[1:] | list`.
  [[nodiscard]] bool is_messages(const Expr& expr) const {
    const Expr& inner = unwrapped(expr);
    return inner.kind == Expr::Kind::kName &&
           (name_of(inner) == "messages" || messages_.contains(inner.name));
  }
  /// Whether it is the content of a message: `message['content']`.
  [[nodiscard]] bool is_content(const Expr& expr) const {
    const Expr& inner = unwrapped(expr);
    if (inner.kind == Expr::Kind::kName) return contents_.contains(inner.name);
    const bool is_member = inner.kind == Expr::Kind::kAttribute || inner.kind == Expr::Kind::kItem;
    if (!is_member || member_of(inner) != "content") return false;
    const Expr& of = *inner.children[0];
    const bool is_message = of.kind == Expr::Kind::kName && message_.contains(of.name);
    return is_message || (of.kind == Expr::Kind::kItem && is_messages(*of.children[0]));
  }
  /// Whether it is the text of one part: `message.content[0]['text']`.
  [[nodiscard]] bool is_text_of_part(const Expr& expr) const {
    const bool is_member = expr.kind == Expr::Kind::kAttribute || expr.kind == Expr::Kind::kItem;
    if (!is_member || member_of(expr) != "text") return false;
    const Expr& of = *expr.children[0];
    return of.kind == Expr::Kind::kItem && is_content(*of.children[0]);
  }
  /// Takes over what the statement assigns; returns whether that is new.
  bool learn(const Stmt& stmt) {
    const bool has_name = stmt.target.kind == AssignTarget::Kind::kName && stmt.expr != nullptr;
    if (!has_name) return false;
    const NameId name = stmt.target.name;
    if (stmt.kind == Stmt::Kind::kFor) {
      return is_messages(*stmt.expr) && message_.insert(name).second;
    }
    const bool assigns = stmt.kind == Stmt::Kind::kSet || stmt.kind == Stmt::Kind::kScope;
    if (!assigns) return false;
    if (is_messages(*stmt.expr)) return messages_.insert(name).second;
    return is_content(*stmt.expr) && contents_.insert(name).second;
  }

 private:
  /// Without the filters, tests and slices around it.
  static const Expr& unwrapped(const Expr& expr) {
    const Expr* inner = &expr;
    while (inner->kind == Expr::Kind::kFilter || inner->kind == Expr::Kind::kTest ||
           inner->kind == Expr::Kind::kSlice) {
      if (inner->children.empty() || inner->children[0] == nullptr) break;
      inner = inner->children[0].get();
    }
    return *inner;
  }
  [[nodiscard]] std::string_view name_of(const Expr& expr) const {
    return program_.names[static_cast<size_t>(expr.name)];
  }
  static std::string_view member_of(const Expr& expr) {
    if (expr.kind == Expr::Kind::kAttribute) return expr.text;
    const Expr* const key = expr.children[1].get();
    const bool is_text =
        key != nullptr && key->kind == Expr::Kind::kLiteral && key->value.is_string();
    return is_text ? std::string_view(key->value.bytes()) : std::string_view();
  }

  const Program& program_;
  std::set<NameId> messages_, message_, contents_;
};

}  // namespace

TemplateFacts facts_of(const Program& program) {
  TemplateFacts facts;
  Holders holders(program);
  const OnExpr nothing = [](const Expr&) {};
  // A variable may be used before the place where it is assigned, as in a macro. The bound keeps a
  // hostile template linear.
  constexpr int kMostPasses = 4;
  bool is_new = true;
  for (int pass = 0; is_new && pass < kMostPasses; ++pass) {
    is_new = false;
    walk(
        program.body, [&](const Stmt& stmt) { is_new = holders.learn(stmt) || is_new; }, nothing);
  }
  const OnStmt on_stmt = [&](const Stmt& stmt) {
    const bool is_loop = stmt.kind == Stmt::Kind::kFor && stmt.expr != nullptr;
    if (is_loop && holders.is_content(*stmt.expr)) facts.iterates_content = true;
  };
  const OnExpr on_expr = [&](const Expr& expr) {
    if (holders.is_text_of_part(expr)) facts.iterates_content = true;
    if (expr.kind == Expr::Kind::kTest && expr.text == "string") facts.tests_strings = true;
    if (expr.kind == Expr::Kind::kName) {
      const std::string& name = program.names[static_cast<size_t>(expr.name)];
      if (name == "tools") facts.reads_tools = true;
      if (name == "documents") facts.reads_documents = true;
      if (name == "reasoning_effort") facts.reads_effort = true;
    }
    const bool is_text = expr.kind == Expr::Kind::kLiteral && expr.value.is_string();
    if (!is_text) return;
    const std::string_view text = expr.value.bytes();
    if (text == "developer") facts.knows_developers = true;
    if (text.find(kShortIds) != text.npos) facts.wants_short_ids = true;
  };
  walk(program.body, on_stmt, on_expr);
  return facts;
}

}  // namespace heddle::chat_template
