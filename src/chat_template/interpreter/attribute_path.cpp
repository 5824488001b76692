#include "chat_template/interpreter/attribute_path.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "chat_template/values/text.h"

namespace heddle::chat_template {

AttributePath::AttributePath(Budget& budget, const Value* path) {
  if (path == nullptr || path->is_none()) return;
  if (!path->is_string()) {
    parts_.push_back(*path);
    return;
  }
  budget.spend_bytes(path->bytes().size());
  for (const std::string_view part : text::split(budget, path->bytes(), ".", -1)) {
    budget.spend_bytes(part.size() + kObjectBytes);
    int64_t index = 0;
    const char* end = part.data() + part.size();
    const auto result = std::from_chars(part.data(), end, index);
    const bool is_index =
        !part.empty() && part[0] != '-' && result.ptr == end && result.ec == std::errc();
    parts_.push_back(is_index ? Value(index) : Value(std::string(part)));
  }
}

Value AttributePath::of(Interpreter& interpreter, const Value& item, const Value* otherwise) const {
  interpreter.budget.spend_steps(parts_.size());
  Value value = item;
  for (const Value& part : parts_) {
    value = interpreter.item(value, part);
    if (value.is_undefined() && otherwise != nullptr) value = *otherwise;
  }
  return value;
}

Value SortKey::of(Interpreter& interpreter, const Value& item) const {
  Value key = path_.of(interpreter, item);
  if (is_case_sensitive_ || !key.is_string()) return key;
  interpreter.budget.spend_bytes(2 * key.bytes().size() + kObjectBytes);
  return text::lower(key.bytes());
}

Values sort_by(Interpreter& interpreter, Values items, const Values& keys, bool is_reversed) {
  interpreter.budget.spend_bytes(items.size(), 2 * sizeof(size_t) + sizeof(Value));
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return is_reversed ? is_less(interpreter.budget, keys[b], keys[a])
                       : is_less(interpreter.budget, keys[a], keys[b]);
  });
  Values sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) sorted.push_back(std::move(items[i]));
  return sorted;
}

}  // namespace heddle::chat_template
