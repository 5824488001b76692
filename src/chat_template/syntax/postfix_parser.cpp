// What follows an expression: attributes, items, slices, calls, filters and tests.
#include <algorithm>
#include <charconv>

#include "chat_template/syntax/callable.h"
#include "chat_template/syntax/parser_state.h"
#include "files/printable.h"

namespace heddle::chat_template {

using Kind = Token::Kind;

ExprPtr Parser::parse_postfix(ExprPtr expr) {
  for (;;) {
    if (at_operator(".")) {
      expr = parse_attribute(std::move(expr));
    } else if (at_operator("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (at_operator("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr expr) {
  for (;;) {
    if (skip_operator("|")) {
      expr = parse_filter(std::move(expr));
    } else if (skip_word("is")) {
      expr = parse_test(std::move(expr));
    } else if (at_operator("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_attribute(ExprPtr object) {
  const int line = take().line;
  if (at(Kind::kInteger)) {  // x.0 is x[0]
    ExprPtr expr = make(Expr::Kind::kItem, line);
    ExprPtr index = make(Expr::Kind::kLiteral, line);
    index->value = parse_integer_token(take());
    add_child(*expr, std::move(object));
    add_child(*expr, std::move(index));
    return expr;
  }
  ExprPtr expr = make(Expr::Kind::kAttribute, line);
  expr->text = expect_name("an attribute");
  add_child(*expr, std::move(object));
  return expr;
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
  ExprPtr expr = make(Expr::Kind::kSlice, take().line);
  add_child(*expr, std::move(object));
  const auto at_part_end = [&] { return at_operator(":") || at_operator("]") || at_operator(","); };
  ExprPtr start = at_part_end() ? nullptr : parse_expression();
  if (start != nullptr && !at_operator(":")) {
    expr->kind = Expr::Kind::kItem;
    if (at_operator(",")) {  // x[1, 2] looks up a tuple
      ExprPtr tuple = make(Expr::Kind::kTuple, expr->line);
      add_child(*tuple, std::move(start));
      while (skip_operator(",")) {
        if (!at_operator("]")) add_child(*tuple, parse_expression());
      }
      start = std::move(tuple);
    }
    add_child(*expr, std::move(start));
  } else {
    if (!at_operator(":")) fail("expected an index, found " + found());
    add_child(*expr, std::move(start));
    for (int part = 0; part < 2; ++part) {
      const bool is_given = skip_operator(":") && !at_part_end();
      add_child(*expr, is_given ? parse_expression() : nullptr);
    }
  }
  expect_operator("]");
  return expr;
}

ExprPtr Parser::parse_call(ExprPtr callee) {
  ExprPtr expr = make(Expr::Kind::kCall, current().line);
  add_child(*expr, std::move(callee));
  parse_arguments(*expr);
  return expr;
}

/// A filter or test of a name that is not here. In an if it is refused when it is reached, as
/// jinja2 does.
void Parser::note_unknown(const Expr& expr, const char* what) {
  if (expr.callable != nullptr || is_lazy_) return;
  unknown_.push_back({expr.line, std::string("unknown ") + what + " " + files::quote(expr.text)});
}

ExprPtr Parser::parse_filter(ExprPtr input) {
  ExprPtr expr = make(Expr::Kind::kFilter, current().line);
  expr->text = expect_name("a filter");
  expr->callable = find_filter(expr->text);
  note_unknown(*expr, "filter");
  add_child(*expr, std::move(input));
  if (at_operator("(")) parse_arguments(*expr);
  return expr;
}

ExprPtr Parser::parse_test(ExprPtr subject) {
  ExprPtr expr = make(Expr::Kind::kTest, current().line);
  const bool is_negated = skip_word("not");
  expr->text = expect_name("a test");
  expr->callable = find_test(expr->text);
  note_unknown(*expr, "test");
  add_child(*expr, std::move(subject));
  const bool at_operand = at(Kind::kName) || at(Kind::kString) || at(Kind::kInteger) ||
                          at(Kind::kFloat) || at_operator("[") || at_operator("{");
  if (at_operator("(")) {
    parse_arguments(*expr);
  } else if (at_operand && !at_word("else") && !at_word("or") && !at_word("and")) {
    if (at_word("is")) fail("a test follows a test without brackets");
    const Nesting nesting(*this);
    add_child(*expr, parse_postfix(parse_primary()));
  }
  if (!is_negated) return expr;
  ExprPtr negation = make(Expr::Kind::kUnary, expr->line);
  negation->operators.push_back("not");
  add_child(*negation, std::move(expr));
  return negation;
}

void Parser::parse_arguments(Expr& call) {
  expect_operator("(");
  while (!at_operator(")")) {
    if (at_operator("*") || at_operator("**")) {
      ExprPtr& more = take().text == "*" ? call.more_arguments : call.more_keywords;
      if (more != nullptr || call.more_keywords != nullptr) fail("arguments are not in order");
      more = parse_expression();
      call.height = std::max(call.height, more->height + 1);
      if (!at_operator(")")) expect_operator(",");
      continue;
    }
    if (call.more_keywords != nullptr) fail("an argument follows ** and its arguments");
    if (at(Kind::kName) && ahead().kind == Kind::kOperator && ahead().text == "=") {
      std::string keyword = take().text;
      if (std::find(call.keywords.begin(), call.keywords.end(), keyword) != call.keywords.end()) {
        fail("argument " + files::quote(keyword) + " is given twice");
      }
      call.keywords.push_back(std::move(keyword));
      take();
    } else if (call.more_arguments != nullptr) {
      fail("an argument without a name follows * and its arguments");
    } else if (!call.keywords.empty()) {
      fail("an argument without a name follows one with a name");
    }
    add_child(call, parse_expression());
    if (call.children.size() > kMaxArguments) fail("too many arguments");
    if (!at_operator(")")) expect_operator(",");
  }
  take();
}

Value Parser::parse_integer_token(const Token& token) const {
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0' && digits[1] > '9') {
    const char prefix = static_cast<char>(digits[1] | 0x20);
    base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : 2;
    digits.remove_prefix(2);
  }
  int64_t number = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (result.ec != std::errc())
    fail("the number " + files::printable(token.text) + " passes 64 bits");
  return number;
}

}  // namespace heddle::chat_template
