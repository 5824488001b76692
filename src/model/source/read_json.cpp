#include "model/source/read_json.h"

#include <filesystem>

#include "heddle/core/error.h"

#include "files/lfs_pointer.h"
#include "files/parse_json.h"

namespace heddle::model {
namespace {

constexpr size_t kMaxFile = size_t{256} << 20;

}  // namespace

std::string read_text(const std::string& path, const files::FolderBounds& bounds) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error) && std::filesystem::is_empty(path, error)) {
    return {};
  }
  std::string text = files::open_within(path, bounds).read_text(kMaxFile);
  files::refuse_lfs_pointer(text, path);
  return text;
}

files::JsonDocument<nlohmann::json> read_json(const std::string& path,
                                              const files::FolderBounds& bounds) {
  auto json = files::parse_json<nlohmann::json>(read_text(path, bounds), path);
  HEDDLE_CHECK(json->is_object(), path, ": is ", files::json_kind(json->type()),
               ", expected an object");
  return json;
}

std::vector<std::pair<std::string, std::string>> read_members(const std::string& path) {
  std::vector<std::pair<std::string, std::string>> members;
  const auto object = read_json(path);
  for (const auto& [key, value] : object->items()) {
    members.emplace_back(key, value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  return members;
}

}  // namespace heddle::model
