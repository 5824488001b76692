// The values of a template: what Python's None, bool, int, float, str, list, tuple, dict and
// iterators are to jinja2.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "chat_template/values/limits.h"
#include "files/json.h"

namespace heddle::chat_template {

class Value;
using Values = std::vector<Value>;

struct Macro;     // syntax/ast.h
struct Stmt;      // syntax/ast.h
struct Scope;     // interpreter/eval.h
struct Callable;  // syntax/callable.h

struct None {};
/// The result of looking up what is not there: prints nothing, is false and empty, and fails with
/// `why` when used.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
struct String {
  std::string bytes;     // UTF-8
  bool is_safe = false;  // made by `safe` or `escape`: `escape` leaves it alone
};
struct SequenceValue {
  enum class Kind : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems };
  Kind kind = Kind::kList;
  Values items;
  int depth = 1;                 // lists and dicts inside one another, this one counted
  bool holds_namespace = false;  // in any depth; loops and local macros count as namespaces
};
struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // in order of insertion, keys are unequal
  int depth = 1;
  bool holds_namespace = false;
};
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};
/// What a generator is in Python: its items can be taken once.
struct Iterator {
  Values items;
  size_t next = 0;
  int depth = 1;  // as for SequenceValue
  bool holds_namespace = false;
};
/// The variable `loop` of a for statement.
struct Loop {
  std::shared_ptr<const SequenceValue> items;
  int64_t index0 = 0;
  int64_t depth0 = 0;
  const Stmt* recursive = nullptr;  // what a call of the loop runs again
  Scope* scope = nullptr;           // around that statement
  std::shared_ptr<const SequenceValue> last_changed = nullptr;  // of loop.changed()
};
/// A macro and the scope that it stands in. No value outlives a scope that it points to: variables
/// are set in the innermost scope, macros return text, and namespaces hold no loop or local macro.
struct BoundMacro {
  const Macro* macro;
  Scope* scope;
  bool is_local;  // the scope is not the template's own
};
struct BoundMethod;

/// Cheap to copy: everything larger than a number is shared, because assignments, arguments and
/// loop variables pass lists and texts around that nothing may change.
class Value {
 public:
  Value() = default;  // undefined
  Value(None none) : data_(none) {}
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string bytes, bool is_safe = false)
      : data_(std::make_shared<const String>(String{std::move(bytes), is_safe})) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<Namespace> space) : data_(std::move(space)) {}
  Value(std::shared_ptr<Iterator> iterator) : data_(std::move(iterator)) {}
  Value(std::shared_ptr<Loop> loop) : data_(std::move(loop)) {}
  Value(std::shared_ptr<const SequenceValue> sequence) : data_(std::move(sequence)) {}
  Value(std::shared_ptr<const BoundMethod> method) : data_(std::move(method)) {}
  Value(std::shared_ptr<const BoundMacro> macro) : data_(std::move(macro)) {}
  Value(const Callable* function) : data_(function) {}
  Value(const void*) = delete;  // no pointer becomes a bool

  static Value undefined(std::string why);
  static Value sequence(SequenceValue::Kind kind, Values items);
  static Value list(Values items) { return sequence(SequenceValue::Kind::kList, std::move(items)); }
  static Value tuple(Values items) {
    return sequence(SequenceValue::Kind::kTuple, std::move(items));
  }
  static Value dict(std::vector<std::pair<Value, Value>> entries);
  static Value iterator(Values items);
  /// The values of a JSON document; throws Error(kInvalidArgument) where it nests too deep, holds
  /// text that is not UTF-8 or an integer beyond 64 bits.
  static Value from_json(const files::Json& json, int depth = 0);

  [[nodiscard]] bool is_undefined() const { return holds<Undefined>(); }
  [[nodiscard]] bool is_none() const { return holds<None>(); }
  [[nodiscard]] bool is_bool() const { return holds<bool>(); }
  [[nodiscard]] bool is_int() const {
    return holds<int64_t>();
  }  // not for a bool, which Python counts in
  [[nodiscard]] bool is_float() const { return holds<double>(); }
  [[nodiscard]] bool is_integral() const { return is_int() || is_bool(); }
  [[nodiscard]] bool is_number() const { return is_integral() || is_float(); }
  [[nodiscard]] bool is_string() const { return string() != nullptr; }
  [[nodiscard]] bool is_list() const { return is_sequence(SequenceValue::Kind::kList); }
  [[nodiscard]] bool is_tuple() const { return is_sequence(SequenceValue::Kind::kTuple); }
  [[nodiscard]] bool is_sequence(SequenceValue::Kind kind) const {
    return sequence() != nullptr && sequence()->kind == kind;
  }
  [[nodiscard]] bool is_callable() const;

  [[nodiscard]] bool as_bool() const { return std::get<bool>(data_); }
  [[nodiscard]] int64_t as_int() const { return is_bool() ? as_bool() : std::get<int64_t>(data_); }
  [[nodiscard]] double as_double() const {
    return is_float() ? std::get<double>(data_) : static_cast<double>(as_int());
  }
  [[nodiscard]] const std::string& bytes() const { return string()->bytes; }
  [[nodiscard]] std::string why_undefined() const;

  // Each is null where the value is something else.
  [[nodiscard]] const String* string() const { return get<const String>(); }
  [[nodiscard]] const SequenceValue* sequence() const { return get<const SequenceValue>(); }
  [[nodiscard]] const Dict* dict() const { return get<const Dict>(); }
  [[nodiscard]] Namespace* name_space() const { return get<Namespace>(); }
  [[nodiscard]] Iterator* iterator() const { return get<Iterator>(); }
  [[nodiscard]] Loop* loop() const { return get<Loop>(); }
  [[nodiscard]] const BoundMethod* method() const { return get<const BoundMethod>(); }
  [[nodiscard]] const BoundMacro* macro() const { return get<const BoundMacro>(); }
  [[nodiscard]] const Callable* function() const { return get_raw<Callable>(); }
  [[nodiscard]] std::shared_ptr<const SequenceValue> shared_sequence() const {
    return std::get<std::shared_ptr<const SequenceValue>>(data_);
  }

  /// Lists and dicts inside one another; 0 for anything else.
  [[nodiscard]] int depth() const;
  [[nodiscard]] bool holds_namespace() const;
  /// Python's bool(): zero, empty, None and undefined are false.
  [[nodiscard]] bool is_true() const;
  /// The name of the Python type: "str", "dict" and so on.
  [[nodiscard]] const char* type_name() const;
  /// Python's `is`.
  [[nodiscard]] bool is_same(const Value& other) const;

 private:
  template <class T>
  [[nodiscard]] bool holds() const {
    return std::holds_alternative<T>(data_);
  }
  template <class T>
  [[nodiscard]] T* get() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&data_);
    return pointer == nullptr ? nullptr : pointer->get();
  }
  template <class T>
  [[nodiscard]] const T* get_raw() const {
    const auto* pointer = std::get_if<const T*>(&data_);
    return pointer == nullptr ? nullptr : *pointer;
  }

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const String>,
               std::shared_ptr<const SequenceValue>, std::shared_ptr<const Dict>,
               std::shared_ptr<Namespace>, std::shared_ptr<Iterator>, std::shared_ptr<Loop>,
               std::shared_ptr<const BoundMethod>, std::shared_ptr<const BoundMacro>,
               const Callable*>
      data_;
};

/// A method of a value before it is called, as in `{% if message.items is defined %}`.
struct BoundMethod {
  Value self;
  const Callable* method;
};

/// Two texts, byte by byte; spends their bytes where they are of one length.
bool is_equal_text(Budget& budget, std::string_view a, std::string_view b);
/// Python's ==; throws where the comparison has no meaning here.
bool is_equal(Budget& budget, const Value& a, const Value& b);
/// What Python's containers ask of their items: `is`, then ==. Takes a step or more.
bool is_same_or_equal(Budget& budget, const Value& a, const Value& b);
/// Python's <; throws Error(kInvalidArgument) for types without an order.
bool is_less(Budget& budget, const Value& a, const Value& b);
/// The value of a key, or null. Takes a step for each key looked at.
const Value* find_key(Budget& budget, const Dict& dict, const Value& key);

/// Values told apart by ==, each with the place at which it was added first.
class ValueIndex {
 public:
  explicit ValueIndex(Budget& budget) : budget_(budget) {}
  /// The place of `value`: that of an equal one, or else the number of values added before.
  size_t add(const Value& value);

 private:
  Budget& budget_;
  std::unordered_multimap<size_t, std::pair<Value, size_t>> places_;  // by hash_of
};

}  // namespace heddle::chat_template
