// Attributes, items, iteration and membership.
#include <algorithm>

#include "chat_template/interpreter/eval.h"
#include "chat_template/values/format.h"
#include "chat_template/values/text.h"
#include "files/printable.h"

namespace heddle::chat_template {
namespace {

constexpr const char* kLoopAttributes[] = {"index",    "index0", "revindex", "revindex0",
                                           "first",    "last",   "length",   "previtem",
                                           "nextitem", "depth",  "depth0"};

Value loop_attribute(const Loop& loop, std::string_view name) {
  const Values& items = loop.items->items;
  const auto length = static_cast<int64_t>(items.size());
  const int64_t index = loop.index0;
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return length - index;
  if (name == "revindex0") return length - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == length;
  if (name == "length") return length;
  if (name == "depth") return loop.depth0 + 1;
  if (name == "depth0") return loop.depth0;
  const bool is_previous = name == "previtem";
  const int64_t neighbour = is_previous ? index - 1 : index + 1;
  if (neighbour >= 0 && neighbour < length) return items[static_cast<size_t>(neighbour)];
  return Value::undefined(is_previous ? "there is no previous item" : "there is no next item");
}

std::string object_name(const Value& object) {
  std::string name = object.type_name();
  if (!object.is_none()) name += " object";
  return name;
}

Value no_attribute(const Value& object, const std::string& name) {
  std::string why = "'";
  why.append(object_name(object)).append("' has no attribute ").append(files::quote(name));
  return Value::undefined(std::move(why));
}

/// What the Python type has under this name: a method, or something that is refused; nothing for
/// most names.
std::optional<Value> type_attribute(const Value& object, const std::string& name) {
  if (const Callable* method = find_method(object, name)) {
    return std::make_shared<const BoundMethod>(BoundMethod{object, method});
  }
  if (is_mutating(object, name)) {
    std::string why = "access to attribute '";
    why.append(name).append("' of '").append(object.type_name()).append("' object is unsafe.");
    return Value::undefined(std::move(why));
  }
  if (is_missing_attribute(object, name)) {
    throw_error(ErrorCode::kUnsupported, "attribute ", files::quote(name), " of a ",
                object.type_name());
  }
  return std::nullopt;
}

const Value* item_at(const Values& items, const Value& key) {
  const auto length = static_cast<int64_t>(items.size());
  if (!key.is_integral()) return nullptr;
  const int64_t index = key.as_int() < 0 ? key.as_int() + length : key.as_int();
  return index >= 0 && index < length ? &items[static_cast<size_t>(index)] : nullptr;
}

/// One character of a string, or undefined without a reason.
Value character_at(std::string_view s, int64_t index) {
  const auto length = static_cast<int64_t>(text::length(s));
  if (index < 0) index += length;
  if (index < 0 || index >= length) return {};
  const size_t start = text::byte_offset(s, static_cast<size_t>(index));
  size_t end = start;
  text::next_code_point(s, end);
  return std::string(s.substr(start, end - start));
}

}  // namespace

Value Interpreter::attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) throw Error(ErrorCode::kInvalidArgument, object.why_undefined());
  budget.spend_bytes(name.size() + 2 * kObjectBytes);  // a method or why there is none
  if (Namespace* space = object.name_space()) {
    const Value* value = find_attribute(budget, *space, name);
    return value == nullptr ? no_attribute(object, name) : *value;
  }
  const bool is_loop_attribute =
      object.loop() != nullptr && std::find(std::begin(kLoopAttributes), std::end(kLoopAttributes),
                                            name) != std::end(kLoopAttributes);
  if (is_loop_attribute) return loop_attribute(*object.loop(), name);
  if (const std::optional<Value> found = type_attribute(object, name)) return *found;
  const Value* value = object.dict() == nullptr ? nullptr : find_key(budget, *object.dict(), name);
  return value == nullptr ? no_attribute(object, name) : *value;
}

Value Interpreter::item(const Value& object, const Value& key) {
  if (object.is_undefined()) throw Error(ErrorCode::kInvalidArgument, object.why_undefined());
  const SequenceValue* sequence = object.sequence();
  if (object.dict() != nullptr) {
    const Value* value = find_key(budget, *object.dict(), key);
    if (value != nullptr) return *value;
  } else if (sequence != nullptr && sequence->kind <= SequenceValue::Kind::kRange) {
    const Value* value = item_at(sequence->items, key);
    if (value != nullptr) return *value;
  } else if (object.is_string() && key.is_integral()) {
    budget.spend_bytes(2 * object.bytes().size() + kObjectBytes);
    const Value character = character_at(object.bytes(), key.as_int());
    if (!character.is_undefined()) return Value(character.bytes(), object.string()->is_safe);
  }
  if (!key.is_string()) {
    return missing(object_name(object) + " has no element " +
                   (key.is_integral() ? to_repr(budget, key) : key.type_name()));
  }
  return attribute(object, key.bytes());
}

Values Interpreter::iterate(const Value& value) {
  Values items;
  const auto expect = [&](size_t count) {
    budget.spend_steps(count);
    budget.spend_bytes(count, sizeof(Value));
    items.reserve(count);
  };
  if (value.sequence() != nullptr) {
    expect(value.sequence()->items.size());
    items = value.sequence()->items;
  } else if (value.is_string()) {
    const std::string& bytes = value.bytes();
    budget.spend_bytes(bytes.size());
    const size_t length = text::length(bytes);
    expect(length);
    budget.spend_bytes(length, kObjectBytes);
    for (size_t pos = 0; pos < bytes.size();) {
      const size_t start = pos;
      text::next_code_point(bytes, pos);
      items.emplace_back(bytes.substr(start, pos - start));
    }
  } else if (value.dict() != nullptr) {
    expect(value.dict()->entries.size());
    for (const auto& entry : value.dict()->entries) items.push_back(entry.first);
  } else if (Iterator* iterator = value.iterator()) {
    expect(iterator->items.size() - iterator->next);
    items.assign(iterator->items.begin() + static_cast<ptrdiff_t>(iterator->next),
                 iterator->items.end());
    iterator->next = iterator->items.size();
  } else {
    HEDDLE_CHECK(value.is_undefined(), "a ", value.type_name(), " cannot be iterated");
  }
  return items;
}

bool Interpreter::contains(const Value& container, const Value& member) {
  if (container.is_string()) {
    HEDDLE_CHECK(member.is_string(), "'in' looks for a ", member.type_name(), " in a string");
    budget.spend_bytes(container.bytes().size());
    return text::find(container.bytes(), member.bytes()) != std::string::npos;
  }
  if (container.dict() != nullptr) {
    HEDDLE_CHECK(member.dict() == nullptr && !member.is_list(), "'in' looks for a ",
                 member.type_name(), " in a dict");
    return find_key(budget, *container.dict(), member) != nullptr;
  }
  const auto is_member = [&](const Value& item) { return is_same_or_equal(budget, item, member); };
  if (Iterator* iterator = container.iterator()) {
    while (iterator->next < iterator->items.size()) {
      if (is_member(iterator->items[iterator->next++])) return true;
    }
    return false;
  }
  if (container.sequence() != nullptr) {
    const Values& items = container.sequence()->items;
    return std::any_of(items.begin(), items.end(), is_member);
  }
  HEDDLE_CHECK(container.is_undefined(), "'in' looks into a ", container.type_name());
  return false;
}

}  // namespace heddle::chat_template
