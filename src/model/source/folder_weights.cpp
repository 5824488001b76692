#include "model/source/folder_weights.h"

#include <filesystem>
#include <map>
#include <set>

#include "heddle/core/error.h"

#include "files/json_value.h"
#include "files/printable.h"
#include "model/source/read_json.h"

namespace heddle::model {
namespace {

constexpr const char* kOneFile = "/model.safetensors";
constexpr const char* kIndex = "/model.safetensors.index.json";

WeightType weight_type_of(DType dtype) {
  if (dtype == DType::kFloat16) return WeightType::kF16;
  return dtype == DType::kBFloat16 ? WeightType::kBF16 : WeightType::kF32;
}

/// Whether the name is that of a file in the same folder.
bool is_plain_name(std::string_view name) {
  constexpr size_t kLongest = 255;  // bytes, of any file's name
  return !name.empty() && name.find('/') == name.npos && name.front() != '.' &&
         name.size() <= kLongest && files::printable(name, kLongest) == name;
}

[[noreturn]] void refuse_without_weights(const std::string& folder) {
  const auto has = [&](const char* name) {
    std::error_code error;
    return std::filesystem::exists(folder + name, error);
  };
  for (const char* name : {"/pytorch_model.bin", "/pytorch_model.bin.index.json"}) {
    if (!has(name)) continue;
    throw_error(ErrorCode::kUnsupported, folder, name,
                ": holds pickles, which heddle does not read; this converts them to safetensors: "
                "python -c \"import transformers; "
                "transformers.AutoModelForCausalLM.from_pretrained('",
                folder, "', torch_dtype='auto').save_pretrained('", folder, "')\"");
  }
  for (const char* name : {"/consolidated.safetensors", "/consolidated.00.pth"}) {
    if (!has(name)) continue;
    throw_error(ErrorCode::kUnsupported, folder, name,
                ": has tensor names of its maker's own, which heddle does not read; take the model "
                "in the form of "
                "transformers, with config.json and model.safetensors");
  }
  throw_error(ErrorCode::kInvalidArgument, folder,
              ": has neither model.safetensors nor model.safetensors.index.json");
}

}  // namespace

FolderWeights::FolderWeights(const std::string& folder) {
  const std::string index = folder + kIndex;
  if (std::filesystem::exists(index)) {
    open_listed(folder, index);
  } else {
    path_ = folder + kOneFile;
    if (!std::filesystem::exists(path_)) refuse_without_weights(folder);
    add(path_);
  }
}

void FolderWeights::add(const std::string& path) {
  const files::SafetensorsFile& file = files_.emplace_back(path);
  for (const files::SafetensorsTensor& tensor : file.tensors()) {
    const bool is_new = tensors_.emplace(tensor.name, Place{&file, &tensor}).second;
    HEDDLE_CHECK(is_new, path, ": tensor ", files::quote(tensor.name), " is in another file too");
  }
}

void FolderWeights::open_listed(const std::string& folder, const std::string& index_path) {
  path_ = index_path;
  const auto index = read_json(index_path);
  const files::Json* const map = files::find_member(*index, "weight_map");
  HEDDLE_CHECK(map != nullptr && map->is_object(), index_path,
               ": has no weight_map, expected an object of tensors and files");
  std::map<std::string, std::string> listed;  // file by tensor
  std::set<std::string> names;
  for (const auto& member : map->get_object()) {
    const std::string tensor(member.key());
    const files::Json& file = member.value();
    HEDDLE_CHECK(file.is_string() && is_plain_name(files::text_of(file)), index_path,
                 ": weight_map puts ", files::quote(tensor),
                 " into something that is not a file of this folder");
    listed[tensor] = files::text_of(file);
    names.insert(listed[tensor]);
  }
  for (const std::string& name : names) add(folder + "/" + name);
  for (const auto& [tensor, file] : listed) {
    const auto found = tensors_.find(tensor);
    if (found == tensors_.end()) {
      missing_.push_back(tensor);
      continue;
    }
    HEDDLE_CHECK(found->second.file->path() == folder + "/" + file, index_path,
                 ": weight_map puts ", files::quote(tensor), " into ", files::quote(file),
                 ", but it is in ", found->second.file->path());
  }
}

std::vector<std::string> FolderWeights::file_paths() const {
  std::vector<std::string> paths;
  for (const files::SafetensorsFile& file : files_) paths.push_back(file.path());
  return paths;
}

StoredTensor FolderWeights::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  HEDDLE_CHECK(found != tensors_.end(), path_, ": has no tensor ", files::quote(name));
  const auto& [file, tensor] = found->second;
  const std::vector<int64_t>& shape = tensor->shape;
  StoredTensor result{.name = tensor->name,
                      .path = &file->path(),
                      .rank = static_cast<int>(shape.size()),
                      .type = weight_type_of(file->dtype(*tensor)),
                      .num_bytes = tensor->data.size()};
  if (!shape.empty()) result.columns = shape.back();
  for (size_t i = 0; i + 1 < shape.size(); ++i) result.rows *= shape[i];
  return result;
}

std::vector<std::string_view> FolderWeights::names() const {
  std::vector<std::string_view> names;
  for (const files::SafetensorsFile& file : files_) {
    for (const files::SafetensorsTensor& tensor : file.tensors()) {
      if (tensors_.contains(tensor.name)) names.push_back(tensor.name);
    }
  }
  return names;
}

void FolderWeights::read(const StoredTensor& tensor, size_t first, std::span<std::byte> to) const {
  const auto& [file, stored] = tensors_.at(tensor.name);
  file->read(*stored, first, to);
}

}  // namespace heddle::model
