// Statements.
#include "chat_template/syntax/parser.h"

#include <algorithm>

#include "chat_template/syntax/callable.h"
#include "chat_template/syntax/parser_state.h"
#include "files/printable.h"

namespace heddle::chat_template {

using Kind = Token::Kind;

namespace {

constexpr std::string_view kReserved[] = {"true", "True", "false", "False",  "none", "None",
                                          "and",  "or",   "not",   "in",     "is",   "if",
                                          "else", "elif", "for",   "endfor", "endif"};

bool is_reserved(std::string_view word) {
  return std::find(std::begin(kReserved), std::end(kReserved), word) != std::end(kReserved);
}

}  // namespace

NameId Parser::intern(const std::string& name) {
  const auto [place, is_new] = ids_.emplace(name, static_cast<NameId>(program_->names.size()));
  if (is_new) program_->names.push_back(name);
  return place->second;
}

std::string Parser::expect_variable() {
  if (at(Kind::kName) && is_reserved(current().text)) {
    fail(files::quote(current().text) + " is not a name for a variable");
  }
  return expect_name("a name");
}

std::shared_ptr<Program> Parser::run() {
  program_ = std::make_shared<Program>();
  intern("");  // kBlockText
  for (const char* name : {"loop", "varargs", "kwargs", "caller"}) intern(name);
  program_->body = parse_body({});
  if (!unknown_.empty()) {
    fail_at(unknown_[0].line, ErrorCode::kUnsupported, unknown_[0].what);
  }
  return std::move(program_);
}

/// Statements up to a tag that starts with one of the words, which becomes the current token;
/// without words, up to the template's end.
Body Parser::parse_body(std::initializer_list<std::string_view> ends) {
  const Nesting nesting(*this);
  Body body;
  while (!at(Kind::kEnd)) {
    Token token = take();
    if (token.kind == Kind::kText) {
      body.push_back(
          {.kind = Stmt::Kind::kText, .line = token.line, .text = std::move(token.text)});
    } else if (token.kind == Kind::kOutputBegin) {
      ExprPtr expr = parse_tuple();
      body.push_back({.kind = Stmt::Kind::kOutput, .line = token.line, .expr = std::move(expr)});
      expect(Kind::kOutputEnd, "'}}'");
    } else {
      if (at(Kind::kName) && std::find(ends.begin(), ends.end(), current().text) != ends.end()) {
        return body;
      }
      parse_statement(body);
      expect(Kind::kTagEnd, "'%}'");
    }
  }
  if (ends.size() > 0)
    fail("expected '{% " + std::string(*(ends.end() - 1)) + " %}', found " + found());
  return body;
}

void Parser::parse_statement(Body& body) {
  const int line = current().line;
  const std::string tag = expect_name("a tag's name");
  if (tag == "if") {
    body.push_back(parse_if());
  } else if (tag == "for") {
    body.push_back(parse_for());
  } else if (tag == "set") {
    body.push_back(parse_set());
  } else if (tag == "filter") {
    body.push_back(parse_filter_block());
  } else if (tag == "macro") {
    body.push_back(parse_macro());
  } else if (tag == "call") {
    body.push_back(parse_call_block());
  } else if (tag == "with") {
    body.push_back(parse_with());
  } else if (tag == "print") {
    return parse_print(body);
  } else if (tag == "generation") {
    body.push_back(parse_generation());
  } else if (tag == "break") {
    body.push_back(parse_jump(Stmt::Kind::kBreak));
  } else if (tag == "continue") {
    body.push_back(parse_jump(Stmt::Kind::kContinue));
  } else {
    const bool is_end = tag.starts_with("end") || tag == "else" || tag == "elif";
    fail_at(line, is_end ? ErrorCode::kInvalidArgument : ErrorCode::kUnsupported,
            (is_end ? "unexpected tag " : "unknown tag ") + files::quote(tag));
  }
  body.back().line = line;
}

/// The rest of a tag, then a block with variables of its own.
Body Parser::parse_scope(std::initializer_list<std::string_view> ends) {
  const Temporarily lazy(is_lazy_, false);
  return parse_block(ends);
}

/// The rest of a tag, then its block; the word that ends it has been taken when this returns.
Body Parser::parse_block(std::initializer_list<std::string_view> ends) {
  skip_operator(":");
  expect(Kind::kTagEnd, "'%}'");
  return parse_body(ends);
}

Stmt Parser::parse_if() {
  Stmt statement{.kind = Stmt::Kind::kIf};
  const Temporarily lazy(is_lazy_, true);
  do {
    ExprPtr condition = parse_tuple(false);
    Body body = parse_block({"elif", "else", "endif"});
    statement.clauses.push_back({std::move(condition), std::move(body)});
  } while (skip_word("elif"));
  if (skip_word("else")) statement.otherwise = parse_block({"endif"});
  expect_word("endif");
  return statement;
}

Stmt Parser::parse_for() {
  Stmt statement{.kind = Stmt::Kind::kFor};
  statement.target = parse_target(false);
  expect_word("in");
  statement.expr = parse_tuple(false);
  if (skip_word("if")) statement.condition = parse_expression();
  statement.is_recursive = skip_word("recursive");
  ++loops_;
  statement.body = parse_scope({"else", "endfor"});
  --loops_;
  if (skip_word("else")) statement.otherwise = parse_scope({"endfor"});
  expect_word("endfor");
  return statement;
}

Stmt Parser::parse_set() {
  Stmt statement{.kind = Stmt::Kind::kSet};
  statement.target = parse_target(true);
  if (skip_operator("=")) {
    statement.expr = parse_tuple();
    return statement;
  }
  statement.kind = Stmt::Kind::kSetBlock;
  if (at_operator("|")) {
    statement.expr = make(Expr::Kind::kName, current().line);
    statement.expr->name = kBlockText;
    while (skip_operator("|")) statement.expr = parse_filter(std::move(statement.expr));
  }
  statement.body = parse_scope({"endset"});
  expect_word("endset");
  return statement;
}

Stmt Parser::parse_filter_block() {
  Stmt statement{.kind = Stmt::Kind::kFilterBlock};
  statement.expr = make(Expr::Kind::kName, current().line);
  statement.expr->name = kBlockText;
  do {
    statement.expr = parse_filter(std::move(statement.expr));
  } while (skip_operator("|"));
  statement.body = parse_scope({"endfilter"});
  expect_word("endfilter");
  return statement;
}

Stmt Parser::parse_macro() {
  Stmt statement{.kind = Stmt::Kind::kMacro};
  statement.macro = std::make_unique<Macro>();
  statement.macro->name = expect_variable();
  statement.macro->id = intern(statement.macro->name);
  parse_signature(*statement.macro);
  parse_macro_body(*statement.macro, "endmacro");
  return statement;
}

/// {% call(a) f(b) %}: what f calls as caller(a).
Stmt Parser::parse_call_block() {
  Stmt statement{.kind = Stmt::Kind::kCallBlock};
  statement.macro = std::make_unique<Macro>();
  if (at_operator("(")) parse_signature(*statement.macro);
  statement.expr = parse_expression();
  if (statement.expr->kind != Expr::Kind::kCall) fail("expected a call");
  parse_macro_body(*statement.macro, "endcall");
  return statement;
}

void Parser::parse_signature(Macro& macro) {
  expect_operator("(");
  while (!at_operator(")")) {
    if (!macro.parameters.empty()) expect_operator(",");
    const std::string name = expect_variable();
    Parameter parameter{.name = intern(name), .text = name, .otherwise = nullptr};
    if (skip_operator("=")) {
      parameter.otherwise = parse_expression();
    } else if (!macro.parameters.empty() && macro.parameters.back().otherwise != nullptr) {
      fail("parameter " + files::quote(name) + " without a default follows one with a default");
    }
    macro.parameters.push_back(std::move(parameter));
    if (macro.parameters.size() > kMaxArguments) fail("too many parameters");
  }
  expect_operator(")");
}

void Parser::parse_macro_body(Macro& macro, std::string_view end) {
  const Temporarily loops(loops_, 0);
  macros_.push_back(&macro);
  macro.body = parse_scope({end});
  macros_.pop_back();
  expect_word(end);
  for (const Parameter& parameter : macro.parameters) {
    if (parameter.name == kVarargs) macro.has_varargs = false;
    if (parameter.name == kKwargs) macro.has_kwargs = false;
    if (parameter.name == kCaller) macro.has_caller = false;
  }
}

/// {% with a = 1, b = 2 %}: all values are those of before the block.
Stmt Parser::parse_with() {
  Stmt statement{.kind = Stmt::Kind::kScope};
  statement.target.kind = AssignTarget::Kind::kTuple;
  statement.expr = make(Expr::Kind::kTuple, current().line);
  while (!at(Kind::kTagEnd)) {
    if (!statement.target.items.empty()) expect_operator(",");
    statement.target.items.push_back(parse_target_item(false));
    expect_operator("=");
    add_child(*statement.expr, parse_expression());
  }
  statement.body = parse_scope({"endwith"});
  expect_word("endwith");
  return statement;
}

void Parser::parse_print(Body& body) {
  for (bool is_first = true; !at(Kind::kTagEnd); is_first = false) {
    if (!is_first) expect_operator(",");
    const int line = current().line;
    body.push_back({.kind = Stmt::Kind::kOutput, .line = line, .expr = parse_expression()});
  }
}

/// Marks what the model has said, for training; here it prints its body.
Stmt Parser::parse_generation() {
  Stmt statement{.kind = Stmt::Kind::kScope};
  statement.target.kind = AssignTarget::Kind::kTuple;
  const Temporarily loops(loops_, 0);
  statement.body = parse_scope({"endgeneration"});
  expect_word("endgeneration");
  return statement;
}

Stmt Parser::parse_jump(Stmt::Kind kind) {
  if (loops_ == 0) {
    fail(std::string(kind == Stmt::Kind::kBreak ? "break" : "continue") + " outside of a for");
  }
  return {.kind = kind};
}

AssignTarget Parser::parse_target(bool with_attributes) {
  AssignTarget first = parse_target_item(with_attributes);
  if (!at_operator(",")) return first;
  AssignTarget tuple{.kind = AssignTarget::Kind::kTuple};
  tuple.items.push_back(std::move(first));
  while (skip_operator(",")) {
    if (at_word("in") || at_operator("=") || at_operator(")")) break;
    tuple.items.push_back(parse_target_item(with_attributes));
  }
  return tuple;
}

AssignTarget Parser::parse_target_item(bool with_attributes) {
  const Nesting nesting(*this);
  if (skip_operator("(")) {
    AssignTarget target = parse_target(false);
    expect_operator(")");
    return target;
  }
  const std::string name = expect_variable();
  if (at_operator(".") && with_attributes) {
    take();
    return {.kind = AssignTarget::Kind::kAttribute,
            .name = intern(name),
            .attribute = expect_name("an attribute")};
  }
  if (name == "loop") refuse("an assignment to 'loop'");
  return {.kind = AssignTarget::Kind::kName, .name = intern(name)};
}

std::shared_ptr<Program> parse_template(std::string_view source) {
  HEDDLE_CHECK(source.size() <= kMaxTemplateBytes, "line 1: the template has ", source.size(),
               " bytes, at most ", kMaxTemplateBytes, " are taken");
  return Parser(tokenize(source)).run();
}

}  // namespace heddle::chat_template
