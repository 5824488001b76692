#include "chat_template/values/value.h"

#include <algorithm>

#include "chat_template/values/text.h"
#include "files/json_value.h"

namespace heddle::chat_template {
namespace {

void check_depth(int depth) {
  HEDDLE_CHECK(depth <= kMaxValueDepth, "lists and dicts nest deeper than ", kMaxValueDepth);
}

struct Nesting {
  int depth = 1;
  bool holds_namespace = false;
  void add(const Value& item) {
    depth = std::max(depth, item.depth() + 1);
    holds_namespace = holds_namespace || item.holds_namespace();
  }
};

Nesting nesting_of(const Values& items) {
  Nesting nesting;
  for (const Value& item : items) nesting.add(item);
  check_depth(nesting.depth);
  return nesting;
}

}  // namespace

Value Value::undefined(std::string why) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

Value Value::sequence(SequenceValue::Kind kind, Values items) {
  const Nesting nesting = nesting_of(items);
  return std::make_shared<const SequenceValue>(
      SequenceValue{kind, std::move(items), nesting.depth, nesting.holds_namespace});
}

Value Value::iterator(Values items) {
  const Nesting nesting = nesting_of(items);
  return std::make_shared<Iterator>(
      Iterator{std::move(items), 0, nesting.depth, nesting.holds_namespace});
}

Value Value::dict(std::vector<std::pair<Value, Value>> entries) {
  Nesting nesting;
  for (const auto& [key, item] : entries) {
    nesting.add(key);
    nesting.add(item);
  }
  check_depth(nesting.depth);
  Value value;
  value.data_ = std::make_shared<const Dict>(
      Dict{std::move(entries), nesting.depth, nesting.holds_namespace});
  return value;
}

Value Value::from_json(const files::Json& json, int depth) {
  using boost::json::kind;
  check_depth(depth);
  const auto checked = [](std::string_view bytes) {
    HEDDLE_CHECK(text::is_utf8(bytes), "a variable holds text that is not UTF-8");
    return Value(std::string(bytes));
  };
  switch (json.kind()) {
    case kind::null: break;
    case kind::bool_: return json.get_bool();
    case kind::int64: return json.get_int64();
    case kind::uint64:
      HEDDLE_CHECK(json.get_uint64() <= uint64_t{INT64_MAX}, "a variable holds the integer ",
                   json.get_uint64(), ", which passes 64 bits");
      return static_cast<int64_t>(json.get_uint64());
    case kind::double_: return json.get_double();
    case kind::string: return checked(files::text_of(json));
    case kind::array: {
      Values items;
      items.reserve(json.get_array().size());
      for (const files::Json& item : json.get_array()) items.push_back(from_json(item, depth + 1));
      return list(std::move(items));
    }
    case kind::object: {
      std::vector<std::pair<Value, Value>> entries;
      entries.reserve(json.get_object().size());
      for (const auto& member : json.get_object()) {
        entries.emplace_back(checked(member.key()), from_json(member.value(), depth + 1));
      }
      return dict(std::move(entries));
    }
  }
  return None{};
}

bool Value::is_callable() const {
  // jinja2 defines __call__ for undefined values and loops, if only to fail.
  return method() != nullptr || macro() != nullptr || function() != nullptr || is_undefined() ||
         loop() != nullptr;
}

std::string Value::why_undefined() const {
  const auto& why = std::get<Undefined>(data_).why;
  return why == nullptr ? "a value is undefined" : *why;
}

int Value::depth() const {
  if (sequence() != nullptr) return sequence()->depth;
  if (dict() != nullptr) return dict()->depth;
  if (method() != nullptr) return method()->self.depth() + 1;
  if (iterator() != nullptr) return iterator()->depth;
  return 0;
}

bool Value::holds_namespace() const {
  if (sequence() != nullptr) return sequence()->holds_namespace;
  if (dict() != nullptr) return dict()->holds_namespace;
  if (method() != nullptr) return method()->self.holds_namespace();
  if (iterator() != nullptr) return iterator()->holds_namespace;
  return name_space() != nullptr || loop() != nullptr || (macro() != nullptr && macro()->is_local);
}

bool Value::is_true() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return as_double() != 0;
  if (is_string()) return !bytes().empty();
  if (sequence() != nullptr) return !sequence()->items.empty();
  if (dict() != nullptr) return !dict()->entries.empty();
  if (loop() != nullptr) return !loop()->items->items.empty();
  return true;
}

const char* Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (is_string()) return "str";
  if (dict() != nullptr) return "dict";
  if (name_space() != nullptr) return "Namespace";
  if (iterator() != nullptr) return "generator";
  if (loop() != nullptr) return "LoopContext";
  if (macro() != nullptr) return "Macro";
  if (sequence() != nullptr) {
    static constexpr const char* kNames[] = {"list",      "tuple",       "range",
                                             "dict_keys", "dict_values", "dict_items"};
    return kNames[static_cast<size_t>(sequence()->kind)];
  }
  return "function";
}

bool Value::is_same(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  return std::visit(
      [&](const auto& mine) {
        using T = std::decay_t<decltype(mine)>;
        if constexpr (std::is_same_v<T, None>) {
          return true;
        } else if constexpr (std::is_same_v<T, Undefined>) {
          return mine.why == std::get<T>(other.data_).why;
        } else {
          return mine == std::get<T>(other.data_);
        }
      },
      data_);
}

}  // namespace heddle::chat_template
