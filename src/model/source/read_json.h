#pragma once

#include <string>
#include <utility>
#include <vector>

#include "files/bounded_open.h"
#include "files/json_tree.h"

namespace heddle::model {

/// The JSON object of a file of up to 256 MiB (files::open_within). Errors begin with the path.
[[nodiscard]] files::JsonTree read_json(const std::string& path,
                                        const files::FolderBounds& bounds = {});
/// The members of an object by key, each value as JSON in one line.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> members_of(
    const files::Json& object);
/// The text of a file of up to 256 MiB; of an empty one too.
[[nodiscard]] std::string read_text(const std::string& path,
                                    const files::FolderBounds& bounds = {});

}  // namespace heddle::model
