#include "model/source/read_json.h"

#include <filesystem>

#include "heddle/core/error.h"

#include "files/lfs_pointer.h"
#include "files/mapped_file.h"
#include "files/parse_json.h"

namespace heddle::model {
namespace {

constexpr size_t kMaxFile = size_t{256} << 20;

}  // namespace

std::string read_text(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error) && std::filesystem::is_empty(path, error)) {
    return {};
  }
  const files::MappedFile file(path);
  HEDDLE_CHECK(file.bytes().size() <= kMaxFile, path, ": has ", file.bytes().size(),
               " bytes, at most ", kMaxFile, " are read");
  files::refuse_lfs_pointer(file.bytes(), path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

files::JsonDocument<nlohmann::json> read_json(const std::string& path) {
  auto json = files::parse_json<nlohmann::json>(read_text(path), path);
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
