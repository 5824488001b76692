#include "model/source/model_files.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "heddle/core/error.h"

#include "model/source/folder_model.h"
#include "model/source/gguf_model.h"
#include "model/source/hub_cache.h"

namespace heddle::model {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{5};  // with who writes to the files

std::unique_ptr<ModelFiles> open_at(const std::string& where) {
  std::error_code error;
  if (std::filesystem::is_directory(where, error)) return std::make_unique<FolderModel>(where);
  return std::make_unique<GgufModel>(where);
}

}  // namespace

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
  const auto deadline = Clock::now() + kPatience;
  files::FileStamps settled;
  for (;;) {
    const int64_t begin = files::file_time_now();
    std::unique_ptr<ModelFiles> opened = open_at(where);
    const std::vector<std::string> paths = opened->file_paths();
    opened->stamps_ = files::stamps_of(paths);
    if (opened->stamps_ == settled || files::are_settled(opened->stamps_, begin)) return opened;
    // Somebody has just written to them: what was read may be half of what will be there.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    settled = files::wait_until_settled(where, std::max(left, std::chrono::milliseconds(0)),
                                        [&] { return files::stamps_of(paths); });
  }
}

void ModelFiles::check_unchanged() const {
  const std::vector<std::string> paths = file_paths();
  const files::FileStamps now = files::stamps_of(paths);
  for (size_t i = 0; i < stamps_.size(); ++i) {
    HEDDLE_CHECK(i < now.size() && now[i] == stamps_[i], stamps_[i].name,
                 ": has changed while the model was loaded; load it again");
  }
}

}  // namespace heddle::model
