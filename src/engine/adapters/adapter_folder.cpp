#include "engine/adapters/adapter_folder.h"

#include <algorithm>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "heddle/engine/request.h"

#include "files/printable.h"

namespace heddle {
namespace fs = std::filesystem;
namespace {

constexpr const char* kWeightFile = "/adapter_model.safetensors";
/// The files of an adapter's folder that are read.
constexpr const char* kFiles[] = {"/adapter_config.json", kWeightFile,
                                  "/tokenizer.json",      "/tokenizer_config.json",
                                  "/added_tokens.json",   "/special_tokens_map.json",
                                  "/chat_template.jinja", "/additional_chat_templates"};

/// Nanoseconds since 1970.
int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void add_stamp(FileStamps& stamps, const std::string& path, const char* name) {
  struct stat info {};
  if (::stat((path + name).c_str(), &info) != 0) return;
  stamps.push_back({.name = name,
                    .device = static_cast<uint64_t>(info.st_dev),
                    .file = static_cast<uint64_t>(info.st_ino),
                    .size = static_cast<int64_t>(info.st_size),
                    .written_ns = nanoseconds(info.st_mtim),
                    .changed_ns = nanoseconds(info.st_ctim)});
}

/// Why no adapter of a folder can have this name; null where one can.
const char* wrong_with(const std::string& name) {
  if (name.find('\0') != std::string::npos) return "it holds a NUL byte";
  if (name.find('/') != std::string::npos) return "it holds a '/'";
  if (name == "." || name == "..") return "it stands for another folder";
  constexpr size_t kLongest = 255;
  if (name.size() > kLongest) return "it has more than 255 bytes";
  return nullptr;
}

UnknownAdapter unknown(const std::string& name, const std::string& why) {
  return UnknownAdapter("unknown adapter " + files::quote(name) + ": " + why);
}

}  // namespace

FileStamps stamps_of(const std::string& path) {
  FileStamps stamps;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    add_stamp(stamps, path, "");
    return stamps;
  }
  for (const char* name : kFiles) add_stamp(stamps, path, name);
  return stamps;
}

AdapterFolder::AdapterFolder(const std::string& path) : path_(path) {
  std::error_code error;
  HEDDLE_CHECK(fs::is_directory(path, error), path, ": is no folder of adapters");
  real_ = fs::canonical(path, error);
  HEDDLE_CHECK(!error, path, ": ", error.message());
}

std::string AdapterFolder::find(const std::string& name) const {
  const char* const wrong = wrong_with(name);
  if (wrong != nullptr) {
    throw unknown(name, "no adapter of " + path_ + " can have this name, " + wrong);
  }
  for (const std::string& place : {path_ + "/" + name, path_ + "/" + name + ".gguf"}) {
    std::error_code error;
    if (!fs::exists(fs::symlink_status(place, error))) continue;
    check_inside(place, name);
    const bool is_folder = fs::is_directory(place, error);
    if (!is_folder && !fs::is_regular_file(place, error)) {
      throw unknown(name, place + " is neither a folder nor a file");
    }
    if (!is_folder) return place;
    for (const char* file : kFiles) {
      const std::string part = place + file;
      if (fs::is_symlink(fs::symlink_status(part, error))) check_inside(part, name);
    }
    return place;
  }
  throw unknown(name, path_ + " has none of this name");
}

void AdapterFolder::check_inside(const fs::path& place, const std::string& name) const {
  std::error_code error;
  const fs::path real = fs::canonical(place, error);
  HEDDLE_CHECK(!error, "adapter ", files::quote(name), ": ", place.string(), ": ", error.message());
  const auto [end, at] = std::ranges::mismatch(real_, real);
  HEDDLE_CHECK(end == real_.end() && at != real.end(), "adapter ", files::quote(name), ": ",
               place.string(), " is a link that leads out of ", path_);
}

void read_ahead(const std::string& path) noexcept {
  try {
    std::error_code error;
    const std::string file = fs::is_directory(path, error) ? path + kWeightFile : path;
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return;
    static_cast<void>(::posix_fadvise(descriptor, 0, 0, POSIX_FADV_WILLNEED));
    ::close(descriptor);
  } catch (const std::bad_alloc&) {  // it will be read when it is needed
  }
}

}  // namespace heddle
