#pragma once

#include <string>
#include <vector>

#include "model/config/embedding_settings.h"

namespace heddle::model {

/// Reads what sentence-transformers saves next to a model: modules.json, which lists the steps from
/// a text to its embedding, and the config.json of its pooling. A folder without modules.json has
/// the defaults. Throws Error where a file is damaged; a step that heddle does not compute is
/// EmbeddingSettings::unsupported.
[[nodiscard]] EmbeddingSettings read_embedding_settings(const std::string& folder);
/// The files of them that exist.
[[nodiscard]] std::vector<std::string> embedding_files(const std::string& folder);

}  // namespace heddle::model
