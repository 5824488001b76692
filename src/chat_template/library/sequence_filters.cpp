// Filters of lists, dicts and whatever can be iterated.
#include <algorithm>

#include "chat_template/interpreter/attribute_path.h"
#include "chat_template/interpreter/eval.h"
#include "chat_template/interpreter/operators.h"
#include "chat_template/syntax/callable.h"
#include "chat_template/values/format.h"
#include "chat_template/values/text.h"
#include "files/printable.h"

namespace heddle::chat_template {
namespace {
namespace of_sequences {

Value otherwise(Call& call) {
  const bool is_absent = call.self.is_undefined() || (call.flag(1) && !call.self.is_true());
  if (!is_absent) return call.self;
  return call.arg(0) == nullptr ? Value("") : *call.arg(0);
}

Value length(Call& call) {
  const Value& self = call.self;
  if (self.is_undefined()) return int64_t{0};
  if (self.is_string()) {
    call.interpreter.budget.spend_bytes(self.bytes().size());
    return static_cast<int64_t>(text::length(self.bytes()));
  }
  if (self.sequence() != nullptr) return static_cast<int64_t>(self.sequence()->items.size());
  if (self.dict() != nullptr) return static_cast<int64_t>(self.dict()->entries.size());
  if (self.loop() != nullptr) return static_cast<int64_t>(self.loop()->items->items.size());
  throw_error(ErrorCode::kInvalidArgument, "a ", self.type_name(), " has no length");
}

Value first(Call& call) {
  if (Iterator* iterator = call.self.iterator()) {
    if (iterator->next < iterator->items.size()) return iterator->items[iterator->next++];
    return Value::undefined("No first item, sequence was empty.");
  }
  const Values items = call.interpreter.iterate(call.self);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

/// The items of what Python can reverse.
Values reversible(Call& call) {
  HEDDLE_CHECK(call.self.iterator() == nullptr, "a generator cannot be reversed");
  return call.interpreter.iterate(call.self);
}

Value last(Call& call) {
  const Values items = reversible(call);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reverse(Call& call) {
  if (call.self.is_string()) {
    const Value minus_one = int64_t{-1};
    return apply_slice(call.interpreter.budget, call.self, nullptr, nullptr, &minus_one);
  }
  // What cannot be walked backwards is made a list first, which is no generator and can be taken
  // twice.
  const bool is_list = call.self.iterator() != nullptr;
  Values items = call.interpreter.iterate(call.self);
  std::reverse(items.begin(), items.end());
  return is_list ? Value::list(std::move(items)) : Value::iterator(std::move(items));
}

Value list(Call& call) { return Value::list(call.interpreter.iterate(call.self)); }

Value join(Call& call) {
  Budget& budget = call.interpreter.budget;
  const AttributePath path(budget, call.some(1));
  const std::string separator = call.arg(0) == nullptr ? "" : to_text(budget, *call.arg(0));
  BudgetedText result(budget);
  bool is_first = true;
  for (const Value& item : call.interpreter.iterate(call.self)) {
    if (!is_first) result += separator;
    result += to_text(budget, path.of(call.interpreter, item));
    is_first = false;
  }
  return result.take();
}

Values entries_of(Call& call) {
  const auto& entries = call.self.dict()->entries;
  call.interpreter.budget.spend_bytes(entries.size(), 3 * sizeof(Value) + kObjectBytes);
  Values items;
  items.reserve(entries.size());
  for (const auto& [key, value] : entries) items.push_back(Value::tuple({key, value}));
  return items;
}

Value items(Call& call) {
  if (call.self.is_undefined()) return Value::iterator({});
  HEDDLE_CHECK(call.self.dict() != nullptr, "items of a ", call.self.type_name());
  return Value::iterator(entries_of(call));
}

Value sort_dict(Call& call) {
  if (call.self.is_undefined()) throw Error(ErrorCode::kInvalidArgument, call.self.why_undefined());
  HEDDLE_CHECK(call.self.dict() != nullptr, "dictsort of a ", call.self.type_name());
  const std::string by = call.arg(1) == nullptr ? "key" : call.text(1);
  HEDDLE_CHECK(by == "key" || by == "value", "dictsort by ", files::quote(by),
               ": 'key' or 'value' is possible");
  Budget& budget = call.interpreter.budget;
  const SortKey sort_key(budget, nullptr, call.flag(0));
  budget.spend_bytes(call.self.dict()->entries.size(), sizeof(Value));
  Values keys;
  for (const auto& [key, value] : call.self.dict()->entries) {
    keys.push_back(sort_key.of(call.interpreter, by == "key" ? key : value));
  }
  return Value::list(sort_by(call.interpreter, entries_of(call), keys, call.flag(2)));
}

Value sort(Call& call) {
  Budget& budget = call.interpreter.budget;
  const Value* attribute = call.some(2);
  std::vector<SortKey> sort_keys;
  if (attribute != nullptr && attribute->is_string()) {
    budget.spend_bytes(attribute->bytes().size());
    for (const std::string_view path : text::split(budget, attribute->bytes(), ",", -1)) {
      budget.spend_bytes(path.size() + 2 * kObjectBytes);
      const Value one = std::string(path);
      sort_keys.emplace_back(budget, &one, call.flag(1));
    }
  } else {
    sort_keys.emplace_back(budget, attribute, call.flag(1));
  }
  Values items = call.interpreter.iterate(call.self), keys;
  budget.spend_bytes(items.size(), (sort_keys.size() + 1) * sizeof(Value) + kObjectBytes);
  for (const Value& item : items) {
    Values parts;
    for (const SortKey& key : sort_keys) parts.push_back(key.of(call.interpreter, item));
    keys.push_back(Value::list(std::move(parts)));
  }
  return Value::list(sort_by(call.interpreter, std::move(items), keys, call.flag(0)));
}

Value unique(Call& call) {
  const SortKey sort_key(call.interpreter.budget, call.some(1), call.flag(0));
  ValueIndex seen(call.interpreter.budget);
  Values result;
  for (const Value& item : call.interpreter.iterate(call.self)) {
    const Value key = sort_key.of(call.interpreter, item);
    HEDDLE_CHECK(key.dict() == nullptr && !key.is_list(), "unique of items that are a ",
                 key.type_name());
    if (seen.add(key) == result.size()) result.push_back(item);
  }
  return Value::iterator(std::move(result));
}

Value extreme(Call& call, bool is_max) {
  const Values items = call.interpreter.iterate(call.self);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const SortKey sort_key(call.interpreter.budget, call.some(1), call.flag(0));
  size_t best = 0;
  Value best_key = sort_key.of(call.interpreter, items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = sort_key.of(call.interpreter, items[i]);
    const bool is_better = is_max ? is_less(call.interpreter.budget, best_key, key)
                                  : is_less(call.interpreter.budget, key, best_key);
    if (!is_better) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}
Value least(Call& call) { return extreme(call, false); }
Value most(Call& call) { return extreme(call, true); }

Value sum(Call& call) {
  const AttributePath path(call.interpreter.budget, call.some(0));
  Value total = call.arg(1) == nullptr ? Value(int64_t{0}) : *call.arg(1);
  HEDDLE_CHECK(!total.is_string(), "sum cannot start with a string");
  for (const Value& item : call.interpreter.iterate(call.self)) {
    total = apply_binary(call.interpreter.budget, "+", total, path.of(call.interpreter, item));
  }
  return total;
}

Value batch(Call& call) {
  const int64_t size = call.integer(0, 1);
  Budget& budget = call.interpreter.budget;
  Values rows, row;
  const auto end_row = [&] {
    budget.spend_bytes(sizeof(Value) + kObjectBytes);
    rows.push_back(Value::list(std::exchange(row, {})));
  };
  for (const Value& item : call.interpreter.iterate(call.self)) {
    if (static_cast<int64_t>(row.size()) == size) end_row();
    row.push_back(item);
  }
  if (!row.empty()) {
    const size_t missing =
        static_cast<int64_t>(row.size()) < size ? static_cast<size_t>(size) - row.size() : 0;
    if (call.some(1) != nullptr) {
      budget.spend_bytes(missing, sizeof(Value));
      row.insert(row.end(), missing, *call.arg(1));
    }
    end_row();
  }
  return Value::iterator(std::move(rows));
}

/// So many lists, the first of them one item longer where they cannot be equal.
Value slice(Call& call) {
  const int64_t num_slices = call.integer(0, 1);
  HEDDLE_CHECK(num_slices > 0, "slice into ", num_slices, " lists");
  const auto count = static_cast<size_t>(num_slices);
  Budget& budget = call.interpreter.budget;
  const Values items = call.interpreter.iterate(call.self);
  budget.spend_bytes(count, 2 * sizeof(Value) + kObjectBytes);
  budget.spend_bytes(items.size(), sizeof(Value));
  budget.spend_steps(count);
  Values slices;
  size_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    const bool is_longer = i < items.size() % count;
    const size_t size = items.size() / count + (is_longer ? 1 : 0);
    const auto begin = items.begin() + static_cast<ptrdiff_t>(next);
    Values part(begin, begin + static_cast<ptrdiff_t>(size));
    if (call.some(1) != nullptr && !is_longer) part.push_back(*call.arg(1));
    slices.push_back(Value::list(std::move(part)));
    next += size;
  }
  return Value::iterator(std::move(slices));
}

constexpr Callable kFilters[] = {
    {.name = "default", .call = otherwise, .parameters = {"default_value", "boolean"}},
    {.name = "d", .call = otherwise, .parameters = {"default_value", "boolean"}},
    {.name = "length", .call = length},
    {.name = "count", .call = length},
    {.name = "first", .call = first},
    {.name = "last", .call = last},
    {.name = "reverse", .call = reverse},
    {.name = "list", .call = list},
    {.name = "join", .call = join, .parameters = {"d", "attribute"}},
    {.name = "items", .call = items},
    {.name = "dictsort", .call = sort_dict, .parameters = {"case_sensitive", "by", "reverse"}},
    {.name = "sort", .call = sort, .parameters = {"reverse", "case_sensitive", "attribute"}},
    {.name = "unique", .call = unique, .parameters = {"case_sensitive", "attribute"}},
    {.name = "min", .call = least, .parameters = {"case_sensitive", "attribute"}},
    {.name = "max", .call = most, .parameters = {"case_sensitive", "attribute"}},
    {.name = "sum", .call = sum, .parameters = {"attribute", "start"}},
    {.name = "slice", .call = slice, .parameters = {"slices", "fill_with"}, .required = 1},
    {.name = "batch", .call = batch, .parameters = {"linecount", "fill_with"}, .required = 1},
};

}  // namespace of_sequences
}  // namespace

Callables sequence_filters() { return of_sequences::kFilters; }

}  // namespace heddle::chat_template
