// The parsed template.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat_template/values/value.h"

namespace heddle::chat_template {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<Stmt>;

/// Index into Program::names.
enum class NameId : int32_t {};
inline constexpr NameId kBlockText{
    0};  // what a block of `set` printed, for its filters; its name is empty
inline constexpr NameId kLoopName{1};                         // "loop"
inline constexpr NameId kVarargs{2}, kKwargs{3}, kCaller{4};  // "varargs", "kwargs", "caller"

struct Expr {
  enum class Kind : uint8_t {
    kLiteral,      // value
    kName,         // name
    kList,         // children
    kTuple,        // children
    kDict,         // children: key, value, key, value ...
    kUnary,        // operators[0] of children[0]: "not", "-" or "+"
    kBinary,       // operators[0] of both children: + - * / // % **
    kLogical,      // operators[0] of both children: "and" or "or"
    kCompare,      // children[i] operators[i] children[i + 1], all of them
    kConcat,       // children joined by ~
    kConditional,  // children: condition, value and, where given, the other value
    kAttribute,    // children[0].text
    kItem,         // children[0][children[1]]
    kSlice,   // children[0][children[1] : children[2] : children[3]], each of the last three may be
              // null
    kFilter,  // callable applied to children[0]; arguments are the other children
    kTest,    // as kFilter
    kCall,    // children[0] called; arguments are the other children
  };
  Kind kind;
  int line = 0;
  int height = 1;  // expressions inside one another, this one counted
  Value value;
  NameId name{};
  std::string text;
  const Callable* callable = nullptr;
  std::vector<std::string> operators;
  std::vector<ExprPtr> children;
  std::vector<std::string> keywords;  // of the last keywords.size() children
  ExprPtr more_arguments;             // after *, may be null
  ExprPtr more_keywords;              // after **, may be null
};

/// What a value is assigned to: a name, an attribute of a namespace, or several of them.
struct AssignTarget {
  enum class Kind : uint8_t { kName, kAttribute, kTuple };
  Kind kind;
  NameId name{};
  std::string attribute{};
  std::vector<AssignTarget> items{};
};

struct Parameter {
  NameId name;
  std::string text;
  ExprPtr otherwise;  // null where an argument must be given
};

struct Stmt {
  enum class Kind : uint8_t {
    kText,         // text
    kOutput,       // expr
    kIf,           // the body of the first clause whose condition holds, else otherwise
    kFor,          // target, expr, condition (may be null), body, otherwise, is_recursive
    kSet,          // target = expr
    kSetBlock,     // target = what body prints, through the filters of expr where there is one
    kFilterBlock,  // what body prints, through the filters of expr
    kMacro,        // macro
    kCallBlock,    // expr, a call, which gets macro as its caller
    kScope,        // target = expr, where there is one, then body; assignments end with it
    kBreak,
    kContinue,
  };
  struct Clause {
    ExprPtr condition;
    Body body;
  };
  Kind kind;
  int line = 0;
  std::string text{};
  ExprPtr expr{};
  ExprPtr condition{};
  AssignTarget target{};
  std::vector<Clause> clauses{};
  Body body{};
  Body otherwise{};
  std::unique_ptr<Macro> macro{};
  bool is_recursive = false;  // of kFor
};

struct Macro {
  std::string name;
  NameId id{};
  std::vector<Parameter> parameters;
  Body body;
  // Special variables that the body uses and that are no parameters.
  bool has_varargs = false, has_kwargs = false, has_caller = false;
};

/// A parsed template.
struct Program {
  std::string name;                // of the template, for messages
  std::vector<std::string> names;  // of variables, by NameId
  Body body;
};

}  // namespace heddle::chat_template
