#include "model/source/model_files.h"

#include <filesystem>

#include "heddle/core/error.h"

#include "model/source/folder_model.h"
#include "model/source/gguf_model.h"
#include "model/source/hub_cache.h"

namespace heddle::model {

int64_t ModelFiles::num_parameters() const {
  int64_t count = 0;
  for (const std::string_view name : weights().names()) {
    const StoredTensor tensor = weights().tensor(name);
    count += tensor.rows * tensor.columns;
  }
  return count;
}

std::unique_ptr<const ModelFiles> open_model(const std::string& path) {
  std::error_code error;
  std::string where = path;
  if (!std::filesystem::exists(path, error) && is_hub_id(path)) where = find_in_hub_cache(path);
  if (std::filesystem::is_directory(where, error)) return std::make_unique<FolderModel>(where);
  return std::make_unique<GgufModel>(where);
}

}  // namespace heddle::model
