#pragma once

#include <span>
#include <string>
#include <string_view>

#include "api/generation.h"
#include "files/json_tree.h"
#include "files/json_value.h"
#include "options.h"

namespace heddle::serve {

using json = files::Json;

/// Parses a body that must be an object. Throws ApiError.
[[nodiscard]] files::JsonTree parse_body(const std::string& body);

/// Refuses a field that is in none of the lists and not neutral, by its name, unless unknown ones
/// are ignored, and takes those that are neutral out. A field that is null counts as not there.
void check_fields(json& body, std::span<const std::string_view> fields,
                  std::span<const std::string_view> more, bool ignores_unknown);

/// The fields of read_common.
[[nodiscard]] std::span<const std::string_view> common_fields();

/// Reads what chat and completions have in common: how tokens are picked, what ends the answer,
/// which model, how it is told.
void read_common(json& body, const app::ServeOptions& options, Generation& generation,
                 Request& request);

/// Takes the field out of the object; null where it is not there. It lies in the memory of the
/// body's tree.
[[nodiscard]] json take(json& body, const char* field);

}  // namespace heddle::serve
