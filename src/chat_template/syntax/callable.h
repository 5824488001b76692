// Filters, tests, methods and global functions: C++ functions under the names that templates know.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chat_template/values/value.h"

namespace heddle::chat_template {

class Interpreter;

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// One call, its arguments sorted by parameter.
class Call {
 public:
  Call(Interpreter& interpreter, const Value& self, Arguments arguments)
      : interpreter(interpreter), self(self), raw(std::move(arguments)) {}

  /// Gives each argument to its parameter; throws where there is none for it, or none for a
  /// required parameter.
  void bind(const Callable& callable);

  /// The argument of parameter i, null where it is not given.
  [[nodiscard]] const Value* arg(size_t i) const { return by_parameter_.at(i); }
  /// As arg(), and null for None.
  [[nodiscard]] const Value* some(size_t i) const;
  [[nodiscard]] bool flag(size_t i) const { return arg(i) != nullptr && arg(i)->is_true(); }
  [[nodiscard]] int64_t integer(size_t i, int64_t otherwise) const;
  /// The argument must be given, and be a string.
  [[nodiscard]] const std::string& text(size_t i) const;

  Interpreter& interpreter;
  const Value& self;  // what the filter, test or method is applied to
  Arguments raw;      // as written, for variadic ones

 private:
  const Callable* callable_ = nullptr;
  std::vector<const Value*> by_parameter_;
};

struct Callable {
  std::string_view name;
  Value (*call)(Call&);
  std::array<std::string_view, 5> parameters = {};
  int required = 0;
  bool is_variadic = false;  // takes its arguments as they come
};

// Each is null where there is no such name.
const Callable* find_filter(std::string_view name);
const Callable* find_test(std::string_view name);
const Callable* find_function(std::string_view name);
const Callable* find_method(const Value& self, std::string_view name);

/// An attribute that Python gives to values of this type and this interpreter does not have.
bool is_missing_attribute(const Value& self, std::string_view name);
/// A method that would change the value.
bool is_mutating(const Value& self, std::string_view name);

using Callables = std::span<const Callable>;

/// Null where the table has no such name.
const Callable* find_in(Callables table, std::string_view name);

// The tables, by what they work on.
Callables text_filters();
Callables number_filters();
Callables sequence_filters();
Callables higher_filters();
Callables format_filters();
Callables tests();
Callables functions();
Callables string_methods();
Callables character_methods();  // of str, too
Callables format_methods();     // of str, too
Callables dict_methods();
Callables sequence_methods();
Callables list_methods();  // those that tuples do not have
Callables loop_methods();

}  // namespace heddle::chat_template
