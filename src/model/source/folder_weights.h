#pragma once

#include <deque>
#include <string>
#include <unordered_map>

#include "files/safetensors.h"
#include "model/config/weight_source.h"

namespace heddle::model {

/// The tensors of a folder: model.safetensors, or the files that model.safetensors.index.json
/// lists.
class FolderWeights : public WeightSource {
 public:
  explicit FolderWeights(const std::string& folder);

  [[nodiscard]] const std::string& path() const override { return path_; }
  [[nodiscard]] std::vector<std::string> file_paths() const;
  [[nodiscard]] bool contains(std::string_view name) const override {
    return tensors_.contains(name);
  }
  [[nodiscard]] StoredTensor tensor(std::string_view name) const override;
  [[nodiscard]] std::vector<std::string_view> names() const override;
  /// Tensors that the index lists and no file has.
  [[nodiscard]] const std::vector<std::string>& missing() const { return missing_; }
  /// From now on there is no such tensor: it belongs to a part of the model that is not loaded.
  void leave_out(std::string_view name) { tensors_.erase(name); }
  void read(const StoredTensor& tensor, size_t first, std::span<std::byte> to) const override;

 private:
  struct Place {
    const files::SafetensorsFile* file;
    const files::SafetensorsTensor* tensor;
  };
  void add(const std::string& path);
  void open_listed(const std::string& folder, const std::string& index_path);

  std::string path_;                          // the file, or the index
  std::deque<files::SafetensorsFile> files_;  // of which none moves
  std::unordered_map<std::string_view, Place> tensors_;
  std::vector<std::string> missing_;
};

}  // namespace heddle::model
