// Expressions.
#include <charconv>

#include "chat_template/syntax/callable.h"
#include "chat_template/syntax/parser_state.h"
#include "files/printable.h"

namespace heddle::chat_template {

using Kind = Token::Kind;

namespace {

bool is_comparison(const Token& token) {
  if (token.kind != Kind::kOperator) return false;
  const std::string& op = token.text;
  return op == "==" || op == "!=" || op == "<" || op == "<=" || op == ">" || op == ">=";
}

}  // namespace

ExprPtr Parser::make(Expr::Kind kind, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

void Parser::add_child(Expr& parent, ExprPtr child) const {
  if (child != nullptr && child->height + 1 > parent.height) parent.height = child->height + 1;
  if (parent.height > kMaxNodeHeight) {
    fail("an expression nests deeper than " + std::to_string(kMaxNodeHeight));
  }
  parent.children.push_back(std::move(child));
}

ExprPtr Parser::parse_tuple(bool with_conditional, bool in_parentheses) {
  const auto at_end = [&] {
    return at(Kind::kOutputEnd) || at(Kind::kTagEnd) || at_operator(")") || at_word("recursive");
  };
  ExprPtr tuple = make(Expr::Kind::kTuple, current().line);
  if (in_parentheses && at_operator(")")) return tuple;
  ExprPtr first = parse_expression(with_conditional);
  if (!at_operator(",")) return first;
  add_child(*tuple, std::move(first));
  while (skip_operator(",") && !at_end()) add_child(*tuple, parse_expression(with_conditional));
  return tuple;
}

ExprPtr Parser::parse_expression(bool with_conditional) {
  const Nesting nesting(*this);
  const size_t num_unknown = unknown_.size();
  ExprPtr value = parse_or();
  while (with_conditional && at_word("if")) {
    ExprPtr conditional = make(Expr::Kind::kConditional, take().line);
    add_child(*conditional, parse_or());
    add_child(*conditional, std::move(value));
    if (skip_word("else")) add_child(*conditional, parse_expression());
    value = std::move(conditional);
    unknown_.resize(num_unknown);  // may never be reached
  }
  return value;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (at_word("or")) {
    ExprPtr expr = make(Expr::Kind::kLogical, current().line);
    expr->operators.push_back(take().text);
    add_child(*expr, std::move(left));
    add_child(*expr, parse_and());
    left = std::move(expr);
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (at_word("and")) {
    ExprPtr expr = make(Expr::Kind::kLogical, current().line);
    expr->operators.push_back(take().text);
    add_child(*expr, std::move(left));
    add_child(*expr, parse_not());
    left = std::move(expr);
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!at_word("not")) return parse_compare();
  const Nesting nesting(*this);
  ExprPtr expr = make(Expr::Kind::kUnary, current().line);
  expr->operators.push_back(take().text);
  add_child(*expr, parse_not());
  return expr;
}

ExprPtr Parser::parse_compare() {
  ExprPtr first = parse_sum();
  ExprPtr expr = make(Expr::Kind::kCompare, current().line);
  const auto next_operator = [&]() -> std::string {
    if (is_comparison(current())) return take().text;
    if (skip_word("in")) return "in";
    if (!at_word("not") || ahead().kind != Kind::kName || ahead().text != "in") return {};
    take();
    take();
    return "not in";
  };
  for (std::string op = next_operator(); !op.empty(); op = next_operator()) {
    if (first != nullptr) add_child(*expr, std::move(first));
    expr->operators.push_back(std::move(op));
    add_child(*expr, parse_sum());
  }
  return first != nullptr ? std::move(first) : std::move(expr);
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (at_operator("+") || at_operator("-")) {
    ExprPtr expr = make(Expr::Kind::kBinary, current().line);
    expr->operators.push_back(take().text);
    add_child(*expr, std::move(left));
    add_child(*expr, parse_concat());
    left = std::move(expr);
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  ExprPtr first = parse_product();
  if (!at_operator("~")) return first;
  ExprPtr expr = make(Expr::Kind::kConcat, current().line);
  add_child(*expr, std::move(first));
  while (skip_operator("~")) add_child(*expr, parse_product());
  return expr;
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (at_operator("*") || at_operator("/") || at_operator("//") || at_operator("%")) {
    ExprPtr expr = make(Expr::Kind::kBinary, current().line);
    expr->operators.push_back(take().text);
    add_child(*expr, std::move(left));
    add_child(*expr, parse_power());
    left = std::move(expr);
  }
  return left;
}

/// From left to right, and weaker than a sign: jinja2 differs from Python in both.
ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary();
  while (at_operator("**")) {
    ExprPtr expr = make(Expr::Kind::kBinary, current().line);
    expr->operators.push_back(take().text);
    add_child(*expr, std::move(left));
    add_child(*expr, parse_unary());
    left = std::move(expr);
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filters) {
  const Nesting nesting(*this);
  ExprPtr expr;
  if (at_operator("-") || at_operator("+")) {
    expr = make(Expr::Kind::kUnary, current().line);
    expr->operators.push_back(take().text);
    add_child(*expr, parse_unary(false));
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filters ? parse_filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::parse_primary() {
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  if (skip_operator("(")) {
    ExprPtr expr = parse_tuple(true, true);
    expect_operator(")");
    return expr;
  }
  ExprPtr expr = make(Expr::Kind::kLiteral, current().line);
  if (at(Kind::kString)) {
    std::string bytes = take().text;
    while (at(Kind::kString)) bytes += take().text;
    expr->value = std::move(bytes);
  } else if (at(Kind::kInteger)) {
    expr->value = parse_integer_token(take());
  } else if (at(Kind::kFloat)) {
    const std::string digits = take().text;
    double number = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (result.ec != std::errc())
      fail("the number " + files::printable(digits) + " is out of range");
    expr->value = number;
  } else if (at_word("true") || at_word("True") || at_word("false") || at_word("False")) {
    const char first = take().text[0];
    expr->value = first == 't' || first == 'T';
  } else if (skip_word("none") || skip_word("None")) {
    expr->value = None{};
  } else if (at(Kind::kName)) {
    expr->kind = Expr::Kind::kName;
    expr->text = expect_variable();
    expr->name = intern(expr->text);
    for (Macro* macro : macros_) {
      macro->has_varargs = macro->has_varargs || expr->name == kVarargs;
      macro->has_kwargs = macro->has_kwargs || expr->name == kKwargs;
      macro->has_caller = macro->has_caller || expr->name == kCaller;
    }
  } else {
    fail("expected an expression, found " + found());
  }
  return expr;
}

ExprPtr Parser::parse_list() {
  ExprPtr list = make(Expr::Kind::kList, take().line);
  while (!at_operator("]")) {
    add_child(*list, parse_expression());
    if (!at_operator("]")) expect_operator(",");
  }
  take();
  return list;
}

ExprPtr Parser::parse_dict() {
  ExprPtr dict = make(Expr::Kind::kDict, take().line);
  while (!at_operator("}")) {
    add_child(*dict, parse_expression());
    expect_operator(":");
    add_child(*dict, parse_expression());
    if (!at_operator("}")) expect_operator(",");
  }
  take();
  return dict;
}

}  // namespace heddle::chat_template
