#include "model/source/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "heddle/core/error.h"

#include "files/printable.h"
#include "model/source/read_json.h"

namespace heddle::model {
namespace {

bool is_name(std::string_view text) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !text.empty() && text.size() <= 96 && text.front() != '.' && text.front() != '-' &&
         std::ranges::all_of(text, is_allowed);
}

}  // namespace

bool is_hub_id(std::string_view text) {
  const size_t slash = text.find('/');
  return slash != text.npos && is_name(text.substr(0, slash)) && is_name(text.substr(slash + 1)) &&
         !text.ends_with(".gguf");
}

std::string hub_cache_folder() {
  const auto value = [](const char* name) -> std::string {
    const char* const text = std::getenv(name);
    return text == nullptr ? "" : text;
  };
  if (const std::string cache = value("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = value("HF_HOME"); !home.empty()) return home + "/hub";
  if (const std::string cache = value("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/huggingface/hub";
  }
  return value("HOME") + "/.cache/huggingface/hub";
}

std::string find_in_hub_cache(const std::string& id) {
  std::string name = "models--" + id;
  name.replace(name.find('/'), 1, "--");
  const std::string folder = hub_cache_folder() + "/" + name;
  const std::string reference = folder + "/refs/main";
  std::error_code error;
  if (std::filesystem::is_regular_file(reference, error)) {
    std::string commit = read_text(reference);
    while (commit.ends_with('\n')) commit.pop_back();
    HEDDLE_CHECK(is_name(commit), reference, ": holds ", files::quote(commit),
                 ", expected the name of a commit");
    std::string snapshot = folder + "/snapshots/" + commit;
    if (std::filesystem::is_directory(snapshot, error)) return snapshot;
  }
  throw_error(ErrorCode::kInvalidArgument, id,
              ": no such file or folder, and nothing of that name in the Hugging Face cache ",
              hub_cache_folder(), "; hf download ", id, " fetches it, or heddle pull ", id);
}

std::string hub_folder_of(const std::string& path) {
  constexpr std::string_view kPrefix = "models--";
  std::filesystem::path folder(path);
  for (; folder.has_relative_path(); folder = folder.parent_path()) {
    const std::string kind = folder.filename().string();
    const std::filesystem::path above = folder.parent_path();
    const std::string name = above.filename().string();
    const bool is_hub =
        name.starts_with(kPrefix) && name.find("--", kPrefix.size()) != std::string::npos;
    if (is_hub && (kind == "snapshots" || kind == "blobs") && folder != path) return above.string();
  }
  return {};
}

}  // namespace heddle::model
