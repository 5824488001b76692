#include "model/source/read_json.h"

#include <algorithm>
#include <filesystem>

#include "heddle/core/error.h"

#include "files/json_text.h"
#include "files/json_value.h"
#include "files/lfs_pointer.h"

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

files::JsonTree read_json(const std::string& path, const files::FolderBounds& bounds) {
  auto json = files::parse_json(read_text(path, bounds), path);
  HEDDLE_CHECK(json->is_object(), path, ": is ", files::json_kind(*json), ", expected an object");
  return json;
}

std::vector<std::pair<std::string, std::string>> members_of(const files::Json& object) {
  std::vector<std::pair<std::string, std::string>> members;
  for (const auto& member : object.get_object()) {
    members.emplace_back(member.key(), files::json_text(member.value()));
  }
  std::ranges::sort(members);
  return members;
}

}  // namespace heddle::model
