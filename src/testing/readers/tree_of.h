#pragma once

#include <nlohmann/json.hpp>

#include "files/json_tree.h"
#include "files/json_value.h"

namespace heddle::testing {

/// Makes `to` what `from` is, also where it holds bytes that no JSON text can.
inline void copy_to(files::Json& to, const nlohmann::ordered_json& from) {
  if (from.is_object()) {
    files::JsonObject& object = to.emplace_object();
    for (const auto& [key, member] : from.items()) copy_to(object[key], member);
  } else if (from.is_array()) {
    files::JsonArray& array = to.emplace_array();
    for (const auto& element : from) copy_to(array.emplace_back(nullptr), element);
  } else if (from.is_string()) {
    to = from.get_ref<const std::string&>();
  } else if (from.is_boolean()) {
    to = from.get<bool>();
  } else if (from.is_number_unsigned()) {
    to = from.get<uint64_t>();
  } else if (from.is_number_integer()) {
    to = from.get<int64_t>();
  } else if (from.is_number_float()) {
    to = from.get<double>();
  }
}

/// The value as heddle's own.
inline files::JsonTree tree_of(const nlohmann::ordered_json& value) {
  files::JsonTree tree;
  copy_to(*tree, value);
  return tree;
}

}  // namespace heddle::testing
