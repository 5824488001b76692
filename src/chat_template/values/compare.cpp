// Equality and order of values, as Python defines them.
#include <algorithm>
#include <cmath>
#include <functional>

#include "chat_template/values/value.h"

namespace heddle::chat_template {
namespace {

/// An integer against a float without the rounding that a conversion to double would bring.
int compare_exactly(int64_t a, double b) {
  if (b >= 0x1p63) return -1;
  if (b < -0x1p63) return 1;
  const auto whole = static_cast<int64_t>(std::floor(b));
  if (a != whole) return a < whole ? -1 : 1;
  return static_cast<double>(whole) < b ? -1 : 0;
}

/// <0, 0 or >0; both are numbers and neither is a NaN.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral())
    return (a.as_int() > b.as_int()) - (a.as_int() < b.as_int());
  if (a.is_integral()) return compare_exactly(a.as_int(), b.as_double());
  if (b.is_integral()) return -compare_exactly(b.as_int(), a.as_double());
  return (a.as_double() > b.as_double()) - (a.as_double() < b.as_double());
}

bool is_nan(const Value& value) { return value.is_float() && std::isnan(value.as_double()); }

/// Dicts made alike have their keys in the same order, so that the first look finds each.
bool is_equal_dict(Budget& budget, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (size_t i = 0; i < a.entries.size(); ++i) {
    const auto& [key, value] = a.entries[i];
    const Value* other = is_same_or_equal(budget, key, b.entries[i].first)
                             ? &b.entries[i].second
                             : find_key(budget, b, key);
    if (other == nullptr || !is_same_or_equal(budget, value, *other)) return false;
  }
  return true;
}

/// Equal for equal values. What is neither number, text nor tuple is rare as an item, and shares
/// one number.
size_t hash_of(Budget& budget, const Value& value) {
  budget.spend_steps(1);
  if (value.is_number()) return std::hash<double>()(value.as_double());
  if (value.is_string()) {
    budget.spend_bytes(value.bytes().size());
    return std::hash<std::string>()(value.bytes());
  }
  size_t hash = 0;
  if (!value.is_tuple()) return hash;
  for (const Value& item : value.sequence()->items) hash = hash * 31 + hash_of(budget, item);
  return hash;
}

}  // namespace

bool is_equal_text(Budget& budget, std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  budget.spend_bytes(a.size());
  return a == b;
}

bool is_same_or_equal(Budget& budget, const Value& a, const Value& b) {
  if (!a.is_same(b)) return is_equal(budget, a, b);
  budget.spend_steps(1);
  return true;
}

bool is_equal(Budget& budget, const Value& a, const Value& b) {
  budget.spend_steps(1);
  if (a.is_number() && b.is_number()) {
    return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) == 0;
  }
  if (a.is_string() && b.is_string()) return is_equal_text(budget, a.bytes(), b.bytes());
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.dict() != nullptr && b.dict() != nullptr)
    return is_equal_dict(budget, *a.dict(), *b.dict());
  if (a.sequence() == nullptr || b.sequence() == nullptr) return a.is_same(b);
  const SequenceValue &x = *a.sequence(), &y = *b.sequence();
  if (x.kind == SequenceValue::Kind::kValues || y.kind == SequenceValue::Kind::kValues)
    return a.is_same(b);
  const auto is_view = [](SequenceValue::Kind kind) { return kind >= SequenceValue::Kind::kKeys; };
  if (is_view(x.kind) && is_view(y.kind)) {
    throw_error(ErrorCode::kUnsupported, "comparing views of dicts");
  }
  if (x.kind != y.kind || x.items.size() != y.items.size()) return false;
  for (size_t i = 0; i < x.items.size(); ++i) {
    if (!is_same_or_equal(budget, x.items[i], y.items[i])) return false;
  }
  return true;
}

bool is_less(Budget& budget, const Value& a, const Value& b) {
  budget.spend_steps(1);
  if (a.is_undefined() || b.is_undefined()) {
    throw Error(ErrorCode::kInvalidArgument, (a.is_undefined() ? a : b).why_undefined());
  }
  if (a.is_number() && b.is_number()) return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) < 0;
  if (a.is_string() && b.is_string()) {
    budget.spend_bytes(std::min(a.bytes().size(), b.bytes().size()));
    return a.bytes() < b.bytes();  // the order of UTF-8 bytes is that of code points
  }
  HEDDLE_CHECK((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple()), "cannot order ",
               a.type_name(), " and ", b.type_name());
  const Values &x = a.sequence()->items, &y = b.sequence()->items;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!is_same_or_equal(budget, x[i], y[i])) return is_less(budget, x[i], y[i]);
  }
  return x.size() < y.size();
}

const Value* find_key(Budget& budget, const Dict& dict, const Value& key) {
  for (const auto& [candidate, value] : dict.entries) {
    if (is_same_or_equal(budget, candidate, key)) return &value;
  }
  return nullptr;
}

size_t ValueIndex::add(const Value& value) {
  const size_t hash = hash_of(budget_, value);
  const auto [first, last] = places_.equal_range(hash);
  for (auto place = first; place != last; ++place) {
    if (is_same_or_equal(budget_, place->second.first, value)) return place->second.second;
  }
  budget_.spend_bytes(kObjectBytes);
  const size_t place = places_.size();
  places_.emplace(hash, std::pair(value, place));
  return place;
}

}  // namespace heddle::chat_template
