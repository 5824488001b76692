#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace heddle::files {

/// Owns a JSON value, nlohmann::json or nlohmann::ordered_json, and takes it apart without asking
/// for memory. The value's own destructor lists the parts of an array or object in a vector, and
/// where that finds no memory the process ends: a destructor cannot throw. Of a scalar and of an
/// empty container it lists nothing, so the parts go from the leaves up. That is one call for each
/// level of nesting, which `parse_json` limits.
template <class Json>
class JsonDocument {
 public:
  JsonDocument() = default;  // null
  explicit JsonDocument(Json&& value) noexcept : value_(std::move(value)) {}
  JsonDocument(JsonDocument&&) noexcept = default;  // the other is null then
  JsonDocument& operator=(JsonDocument&&) = delete;
  ~JsonDocument() { take_apart(value_); }

  [[nodiscard]] Json& operator*() { return value_; }
  [[nodiscard]] const Json& operator*() const { return value_; }
  [[nodiscard]] const Json* operator->() const { return &value_; }

 private:
  static void take_apart(Json& value) noexcept {
    if (auto* array = value.template get_ptr<typename Json::array_t*>()) {
      for (Json& element : *array) take_apart(element);
      array->clear();
    } else if (auto* object = value.template get_ptr<typename Json::object_t*>()) {
      for (auto& [key, member] : *object) take_apart(member);
      object->clear();
    }
  }

  Json value_;
};

/// Adds a member, null so far, whose key the object does not have. Does not look through the
/// others, which an ordered_json's own emplace does. References to its members end here.
inline nlohmann::json& add_member(nlohmann::json& object, const std::string& key) {
  return object.get_ref<nlohmann::json::object_t&>().emplace(key, nullptr).first->second;
}
inline nlohmann::ordered_json& add_member(nlohmann::ordered_json& object, const std::string& key) {
  using Members = nlohmann::ordered_json::object_t;
  auto& members = object.get_ref<Members&>();
  if (members.size() == members.capacity()) {
    // Grown by itself the vector copies the values, as keys are const, and destroys full ones.
    Members larger;
    larger.reserve(std::max<size_t>(2 * members.size(), 4));
    for (const auto& member : members) larger.emplace_back(member.first, nullptr);
    auto place = larger.begin();
    for (auto& member : members) (place++)->second.swap(member.second);
    members.swap(larger);
  }
  return members.emplace_back(key, nullptr).second;
}

/// Makes `to`, which is null or a scalar, a copy of `from`. A copy that is cut short leaves `to`
/// with what was copied, for its document to take apart; nlohmann's own would destroy full
/// containers.
template <class Json>
void copy_json(Json& to, const Json& from) {
  if (from.is_array()) {
    to = Json::array();
    for (const Json& element : from) copy_json(to.emplace_back(nullptr), element);
  } else if (from.is_object()) {
    to = Json::object();
    for (const auto& [key, member] : from.items()) copy_json(add_member(to, key), member);
  } else {
    to = from;
  }
}

}  // namespace heddle::files
