#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "files/json_document.h"

namespace heddle::model {

/// The JSON object of a file of up to 256 MiB. Errors begin with the path.
[[nodiscard]] files::JsonDocument<nlohmann::json> read_json(const std::string& path);
/// The text of a file of up to 256 MiB; of an empty one too.
[[nodiscard]] std::string read_text(const std::string& path);

}  // namespace heddle::model
