// The parser's class; its statements are in parser.cpp, its expressions in
// expression_parser.cpp.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "chat_template/syntax/ast.h"
#include "chat_template/syntax/lexer.h"
#include "chat_template/syntax/temporarily.h"

namespace heddle::chat_template {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  std::shared_ptr<Program> run();

 private:
  // Tokens.
  [[nodiscard]] const Token& current() const { return tokens_[next_]; }
  [[nodiscard]] const Token& ahead() const {
    return tokens_[next_ + 1 < tokens_.size() ? next_ + 1 : next_];
  }
  [[nodiscard]] bool at(Token::Kind kind) const { return current().kind == kind; }
  [[nodiscard]] bool at_operator(std::string_view op) const {
    return at(Token::Kind::kOperator) && current().text == op;
  }
  [[nodiscard]] bool at_word(std::string_view word) const {
    return at(Token::Kind::kName) && current().text == word;
  }
  Token take();
  bool skip_operator(std::string_view op);
  bool skip_word(std::string_view word);
  void expect_operator(std::string_view op);
  void expect_word(std::string_view word);
  void expect(Token::Kind kind, const char* what);
  std::string expect_name(const char* what);
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void refuse(const std::string& what) const;
  [[noreturn]] void fail_at(int line, ErrorCode code, const std::string& what) const;
  [[nodiscard]] std::string found() const;

  // Names.
  NameId intern(const std::string& name);
  std::string expect_variable();

  // Statements.
  Body parse_body(std::initializer_list<std::string_view> ends);
  void parse_statement(Body& body);
  Stmt parse_if();
  Stmt parse_for();
  Stmt parse_set();
  Stmt parse_filter_block();
  Stmt parse_macro();
  Stmt parse_call_block();
  Stmt parse_with();
  void parse_print(Body& body);
  void parse_signature(Macro& macro);
  void parse_macro_body(Macro& macro, std::string_view end);
  Stmt parse_generation();
  Stmt parse_jump(Stmt::Kind kind);
  Body parse_block(std::initializer_list<std::string_view> ends);
  Body parse_scope(std::initializer_list<std::string_view> ends);
  void end_tag(std::string_view word);
  AssignTarget parse_target(bool with_attributes);
  AssignTarget parse_target_item(bool with_attributes);

  // Expressions, from the loosest binding to the tightest.
  ExprPtr parse_tuple(bool with_conditional = true, bool in_parentheses = false);
  ExprPtr parse_expression(bool with_conditional = true);
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters = true);
  ExprPtr parse_primary();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_filters_and_tests(ExprPtr expr);
  ExprPtr parse_attribute(ExprPtr object);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_filter(ExprPtr input);
  ExprPtr parse_test(ExprPtr subject);
  void parse_arguments(Expr& call);
  [[nodiscard]] Value parse_integer_token(const Token& token) const;
  void note_unknown(const Expr& expr, const char* what);

  ExprPtr make(Expr::Kind kind, int line) const;
  void add_child(Expr& parent, ExprPtr child) const;

  /// Counts what is being parsed inside one another.
  class Nesting {
   public:
    explicit Nesting(Parser& parser);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Parser& parser_;
  };

  std::vector<Token> tokens_;
  size_t next_ = 0;
  int nesting_ = 0;
  int loops_ = 0;               // for statements around the current one, up to the next macro
  std::vector<Macro*> macros_;  // around the current statement
  std::shared_ptr<Program> program_;
  std::map<std::string, NameId> ids_;  // where each name is in program_->names
  bool is_lazy_ = false;               // in an if: what is unknown may never be reached
  struct Unknown {
    int line;
    std::string what;
  };
  std::vector<Unknown> unknown_;  // filters and tests outside of an if
};

}  // namespace heddle::chat_template
