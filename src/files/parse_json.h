#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "files/json_document.h"
#include "files/json_tree.h"

namespace heddle::files {

/// The text as Json (nlohmann::json, or nlohmann::ordered_json to keep the order of members). Not
/// JSON, a key given twice in one object and what is past the limits are
/// heddle::Error(kInvalidArgument) of one line that begins with `name`; beside it only
/// std::bad_alloc leaves.
template <class Json>
[[nodiscard]] JsonDocument<Json> parse_json(std::string_view text, const std::string& name,
                                            const JsonLimits& limits = {});

/// "a string", "an object" and so on.
[[nodiscard]] const char* json_kind(nlohmann::json::value_t type);

}  // namespace heddle::files
