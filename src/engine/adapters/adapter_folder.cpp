#include "engine/adapters/adapter_folder.h"

#include <algorithm>
#include <fcntl.h>
#include <functional>
#include <span>
#include <unistd.h>
#include <vector>

#include "heddle/engine/request.h"

#include "files/printable.h"
#include "model/source/hub_cache.h"

namespace heddle {
namespace fs = std::filesystem;
namespace {

constexpr const char* kWeightFile = "/adapter_model.safetensors";
constexpr const char* kMlxWeightFile = "/adapters.safetensors";
constexpr const char* kHeadsFile = "/medusa_lm_head.safetensors";
constexpr const char* kHeadsModelFile = "/model.safetensors";  // of a folder of heads alone
constexpr const char* kTemplates = "/additional_chat_templates";
/// The files of an adapter's folder that are read.
constexpr const char* kFiles[] = {"/adapter_config.json",
                                  kWeightFile,
                                  kMlxWeightFile,
                                  "/config.json",
                                  kHeadsFile,
                                  kHeadsModelFile,
                                  "/tokenizer.json",
                                  "/tokenizer_config.json",
                                  "/added_tokens.json",
                                  "/special_tokens_map.json",
                                  "/vocab.json",
                                  "/merges.txt",
                                  "/chat_template.jinja",
                                  kTemplates};

/// Those of them that are read, which may not be there, and the templates that are files of their
/// own.
std::vector<std::string> file_paths(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> paths;
  for (const char* name : kFiles) paths.push_back(path + name);
  std::vector<std::string> templates;
  for (fs::directory_iterator entry(path + kTemplates, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".jinja") templates.push_back(entry->path().string());
  }
  std::ranges::sort(templates);
  paths.insert(paths.end(), templates.begin(), templates.end());
  return paths;
}

bool holds_weights(const std::string& file) {
  return std::ranges::any_of(
      std::initializer_list<const char*>{kWeightFile, kMlxWeightFile, kHeadsFile, kHeadsModelFile},
      [&](const char* name) { return file.ends_with(name); });
}

/// The file of an adapter's weights: its folder's, or itself.
std::string weight_file(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  const std::string of_mlx = path + kMlxWeightFile;
  return fs::exists(of_mlx, error) ? of_mlx : path + kWeightFile;
}

/// Why no adapter of a folder can have this name; null where one can.
const char* wrong_with(const std::string& name) {
  if (name.find('\0') != std::string::npos) return "it holds a NUL byte";
  if (name.find('/') != std::string::npos) return "it holds a '/'";
  if (name == "." || name == "..") return "it refers to another folder";
  constexpr size_t kLongest = 255;
  if (name.size() > kLongest) return "it has more than 255 bytes";
  return nullptr;
}

UnknownAdapter unknown(const std::string& name, const std::string& why) {
  return UnknownAdapter("unknown adapter " + files::quote(name) + ": " + why);
}

/// Throws Error where a file of an adapter lies outside of its bounds. That it does not now is a
/// sentence in time for who asks; that it does not when it is opened, open_within sees to.
void check_inside(const std::string& path, const files::FolderBounds& bounds) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return;
  const fs::path real = fs::canonical(path, error);
  HEDDLE_CHECK(!error, path, ": ", error.message());
  HEDDLE_CHECK(files::lies_in(real.string(), bounds.front()), path, " is a link that leads out of ",
               bounds.front());
}

}  // namespace

files::FileStamps stamps_of(const std::string& path) { return files::stamps_of(file_paths(path)); }

uint64_t digest_of(const std::string& path, const files::FolderBounds& bounds) {
  constexpr uint64_t kMostOfHeader = uint64_t{16} << 20;  // of safetensors
  uint64_t digest = 0;
  for (const std::string& name : file_paths(path)) {
    std::error_code error;
    if (!fs::is_regular_file(name, error) || fs::is_empty(name, error)) continue;
    const files::OpenFile file = files::open_within(name, bounds);
    const uint64_t size = holds_weights(name) ? std::min(file.size(), kMostOfHeader) : file.size();
    std::string text(size, '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    for (const std::string& each : {name, text}) {
      digest = digest * 0x9E3779B97F4A7C15u + std::hash<std::string>()(each);
    }
  }
  return digest;
}

AdapterFolder::AdapterFolder(const std::string& path) : path_(path) {
  std::error_code error;
  HEDDLE_CHECK(fs::is_directory(path, error), path, ": is not a folder of adapters");
  real_ = fs::canonical(path, error);
  HEDDLE_CHECK(!error, path, ": ", error.message());
}

std::string AdapterFolder::place_of(const std::string& name) const {
  if (wrong_with(name) != nullptr) return {};
  for (std::string place : {path_ + "/" + name, path_ + "/" + name + ".gguf"}) {
    std::error_code error;
    if (fs::exists(fs::symlink_status(place, error))) return place;
  }
  return {};
}

std::string AdapterFolder::find(const std::string& name) const {
  const char* const wrong = wrong_with(name);
  if (wrong != nullptr) {
    throw unknown(name, "no adapter of " + path_ + " can have this name, " + wrong);
  }
  std::string place = place_of(name);
  if (place.empty()) throw unknown(name, path_ + " has no adapter of this name");
  const files::FolderBounds bounds = bounds_of(place);
  std::error_code error;
  const bool is_folder = fs::is_directory(place, error);
  if (!is_folder && !fs::is_regular_file(place, error)) {
    throw unknown(name, place + " is neither a folder nor a file");
  }
  if (!is_folder) return place;
  for (const std::string& part : file_paths(place)) check_inside(part, bounds);
  return place;
}

files::FolderBounds AdapterFolder::bounds_of(const std::string& path) const {
  std::error_code error, no_parent;
  fs::path whole = fs::absolute(path).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  const fs::path parent = fs::canonical(whole.parent_path(), no_parent);
  const bool is_of_folder =
      !no_parent && files::lies_in((parent / whole.filename()).string(), real_.string());
  const fs::path real = fs::canonical(path, error);
  if (error) {
    HEDDLE_CHECK(!is_of_folder, path, ": ", error.message());
    return {};
  }
  if (files::lies_in(real.string(), real_.string())) return {real_.string()};
  if (!is_of_folder) return {};
  const std::string hub = parent == real_ ? model::hub_folder_of(real.string()) : "";
  HEDDLE_CHECK(!hub.empty(), path, " is a link that leads out of ", path_);
  return {hub};
}

AdapterFolders::AdapterFolders(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (!path.empty()) folders_.emplace_back(path);
  }
}

std::string AdapterFolders::find(const std::string& name) const {
  for (size_t i = 1; i < folders_.size(); ++i) {
    if (folders_.front().has(name)) break;
    if (folders_[i].has(name)) return folders_[i].find(name);
  }
  return folders_.front().find(name);
}

files::FolderBounds AdapterFolders::bounds_of(const std::string& path) const {
  files::FolderBounds bounds;
  for (const AdapterFolder& folder : folders_) {
    if (bounds.empty()) bounds = folder.bounds_of(path);
  }
  return bounds;
}

void read_ahead(const std::string& path) noexcept {
  try {
    const int descriptor = ::open(weight_file(path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return;
    static_cast<void>(::posix_fadvise(descriptor, 0, 0, POSIX_FADV_WILLNEED));
    ::close(descriptor);
  } catch (const std::bad_alloc&) {  // it will be read when it is needed
  }
}

}  // namespace heddle
