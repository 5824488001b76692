// The paths that filters take as `attribute`: "function.name", 0, or for sort several with commas
// between.
#pragma once

#include "chat_template/interpreter/eval.h"

namespace heddle::chat_template {

/// The values that a path leads to; digits are indexes.
class AttributePath {
 public:
  /// An absent or None path leads to the item itself.
  AttributePath(Budget& budget, const Value* path);
  [[nodiscard]] Value of(Interpreter& interpreter, const Value& item,
                         const Value* otherwise = nullptr) const;

 private:
  Values parts_;
};

/// What items are ordered by and told apart by: the value of the path, small letters for capitals
/// unless case counts.
class SortKey {
 public:
  SortKey(Budget& budget, const Value* path, bool is_case_sensitive)
      : path_(budget, path), is_case_sensitive_(is_case_sensitive) {}
  [[nodiscard]] Value of(Interpreter& interpreter, const Value& item) const;

 private:
  AttributePath path_;
  bool is_case_sensitive_;
};

/// `items` in the order of their keys, equal ones in the order in which they come.
Values sort_by(Interpreter& interpreter, Values items, const Values& keys, bool is_reversed);

}  // namespace heddle::chat_template
