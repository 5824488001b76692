#include "model/source/embedding_files.h"

#include <filesystem>
#include <string_view>
#include <utility>

#include "heddle/core/error.h"

#include "files/json_value.h"
#include "files/printable.h"
#include "model/source/read_json.h"

namespace heddle::model {
namespace {

constexpr const char* kModules = "/modules.json";

/// A module of the list: its class without the package, and its folder.
struct Module {
  std::string kind, path;
};

std::string text_in(const files::Json& module, std::string_view key, const std::string& file) {
  const files::Json* const value = files::find_member(module, key);
  HEDDLE_CHECK(value != nullptr && value->is_string(), file, ": a module has no text ",
               files::quote(key));
  return std::string(files::text_of(*value));
}

std::vector<Module> read_modules(const std::string& folder) {
  const std::string file = folder + kModules;
  const files::JsonTree list = files::parse_json(read_text(file), file);
  HEDDLE_CHECK(list->is_array(), file, ": is ", files::json_kind(*list), ", expected a list");
  std::vector<Module> modules;
  for (const files::Json& each : list->get_array()) {
    std::string kind = text_in(each, "type", file), path = text_in(each, "path", file);
    const bool is_inside = path.find("..") == path.npos && !path.starts_with('/');
    HEDDLE_CHECK(is_inside, file, ": the path ", files::quote(path), " leads out of the folder");
    kind.erase(0, kind.rfind('.') + 1);
    modules.push_back({std::move(kind), std::move(path)});
  }
  return modules;
}

std::string pooling_file(const std::string& folder, const Module& module) {
  return folder + "/" + module.path + "/config.json";
}

/// What pooling_mode has, a name or a list of them; none where it is not given.
std::vector<std::string> named_modes(const files::Json& config, const std::string& file) {
  const files::Json* const given = files::find_given(config, "pooling_mode");
  if (given == nullptr) return {};
  const auto name_of = [&file](const files::Json& value) {
    HEDDLE_CHECK(value.is_string(), file, ": pooling_mode is or holds ", files::json_kind(value),
                 ", expected a string or a list of them");
    return std::string(files::text_of(value));
  };
  if (!given->is_array()) return {name_of(*given)};
  std::vector<std::string> modes;
  for (const files::Json& each : given->get_array()) modes.push_back(name_of(each));
  return modes;
}

/// What older versions wrote: a flag for each mode.
std::vector<std::string> flagged_modes(const files::Json& config, const std::string& file) {
  constexpr std::pair<const char*, const char*> kModes[] = {
      {"pooling_mode_cls_token", "cls"},
      {"pooling_mode_mean_tokens", "mean"},
      {"pooling_mode_lasttoken", "lasttoken"},
      {"pooling_mode_max_tokens", "max"},
      {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
      {"pooling_mode_weightedmean_tokens", "weightedmean"}};
  std::vector<std::string> modes;
  for (const auto& [key, name] : kModes) {
    const files::Json* const given = files::find_given(config, key);
    if (given == nullptr) continue;
    HEDDLE_CHECK(given->is_bool(), file, ": ", key, " is ", files::json_kind(*given),
                 ", expected true or false");
    if (given->get_bool()) modes.emplace_back(name);
  }
  return modes;
}

/// As sentence-transformers has it: flags are for files without pooling_mode, without any mode it
/// is the mean, and the vectors of several modes are joined.
void read_pooling(const std::string& file, EmbeddingSettings& settings) {
  const files::JsonTree config = read_json(file);
  std::vector<std::string> modes = named_modes(*config, file);
  if (modes.empty()) modes = flagged_modes(*config, file);
  if (modes.empty()) modes.emplace_back("mean");
  const auto pooling = modes.size() == 1 ? find_pooling(modes.front()) : std::nullopt;
  if (pooling) {
    settings.pooling = *pooling;
    return;
  }
  std::string names;
  for (const std::string& mode : modes)
    names += (names.empty() ? "" : ", ") + files::printable(mode);
  settings.unsupported =
      file + ": pooling by " + names + " is not supported; one of lasttoken, mean and cls is";
}

}  // namespace

EmbeddingSettings read_embedding_settings(const std::string& folder) {
  EmbeddingSettings settings;
  std::error_code error;
  if (!std::filesystem::exists(folder + kModules, error)) return settings;
  settings.normalizes = false;
  for (const Module& module : read_modules(folder)) {
    if (module.kind == "Transformer") continue;
    if (module.kind == "Normalize") {
      settings.normalizes = true;
    } else if (module.kind == "Pooling") {
      read_pooling(pooling_file(folder, module), settings);
    } else {
      settings.unsupported = folder + kModules + ": module " + files::quote(module.kind) +
                             " is not supported; Transformer, Pooling and Normalize are";
    }
    if (!settings.unsupported.empty()) return settings;
  }
  return settings;
}

std::vector<std::string> embedding_files(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder + kModules, error)) return {};
  std::vector<std::string> paths{folder + kModules};
  for (const Module& module : read_modules(folder)) {
    if (module.kind == "Pooling") paths.push_back(pooling_file(folder, module));
  }
  return paths;
}

}  // namespace heddle::model
