// Equality and order of values, as Python defines them.
#include <algorithm>
#include <cmath>

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

/// Python compares items of containers by identity first.
bool is_same_or_equal(Budget& budget, const Value& a, const Value& b) {
  return (a.is_same(b) && !is_nan(a)) || is_equal(budget, a, b);
}

bool is_equal_dict(Budget& budget, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = find_key(budget, b, entry.first);
    return other != nullptr && is_same_or_equal(budget, entry.second, *other);
  });
}

}  // namespace

bool is_equal(Budget& budget, const Value& a, const Value& b) {
  budget.spend_steps(1);
  if (a.is_number() && b.is_number()) {
    return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) == 0;
  }
  if (a.is_string() && b.is_string()) {
    if (a.bytes().size() != b.bytes().size()) return false;
    budget.spend_bytes(a.bytes().size());
    return a.bytes() == b.bytes();
  }
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.dict() != nullptr && b.dict() != nullptr)
    return is_equal_dict(budget, *a.dict(), *b.dict());
  if (a.sequence() == nullptr || b.sequence() == nullptr) return a.is_same(b);
  const Sequence &x = *a.sequence(), &y = *b.sequence();
  if (x.kind == Sequence::Kind::kValues || y.kind == Sequence::Kind::kValues) return a.is_same(b);
  const auto is_view = [](Sequence::Kind kind) { return kind >= Sequence::Kind::kKeys; };
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

}  // namespace heddle::chat_template
