#include "service/served_names.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <regex>
#include <utility>

#include <spdlog/spdlog.h>

#include "heddle/core/error.h"

#include "api/api_error.h"
#include "options.h"
#include "request_json/shown.h"

namespace heddle::serve {
namespace {

int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// "models--ORG--NAME" of the hub's cache as "ORG/NAME"; empty where it is no such name.
std::string hub_name(const std::string& folder) {
  constexpr std::string_view kPrefix = "models--", kBetween = "--";
  if (!folder.starts_with(kPrefix)) return {};
  std::string name = folder.substr(kPrefix.size());
  const size_t at = name.find(kBetween);
  if (at == std::string::npos) return {};
  return name.replace(at, kBetween.size(), "/");
}

/// Without "-00001-of-00003".
std::string without_part(const std::string& stem) {
  static const std::regex part("-[0-9]{5}-of-[0-9]{5}$");
  return std::regex_replace(stem, part, "");
}

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

std::string usual_name(const std::string& model_path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::exists(model_path, error)) return model_path;  // a hub name, from the cache
  fs::path path = fs::absolute(model_path, error).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  const bool is_snapshot = path.parent_path().filename() == "snapshots";
  if (is_snapshot) {
    std::string name = hub_name(path.parent_path().parent_path().filename().string());
    if (!name.empty()) return name;
  }
  if (path.extension() == ".gguf") return without_part(path.stem().string());
  return path.filename().string();
}

ServedNames::ServedNames(Base base, std::string lora_root, const std::string& model_path)
    : base_(std::move(base)), lora_root_(std::move(lora_root)) {
  namespace fs = std::filesystem;
  std::error_code no_folder;
  for (const fs::path& folder : {fs::path(lora_root_), fs::canonical(lora_root_, no_folder),
                                 fs::path(model_path).parent_path()}) {
    if (!folder.empty()) folders_.push_back((folder / "").string());
  }
  reread();
}

bool ServedNames::is_base(const std::string& name) const {
  return holds(base_.listed, name) || holds(base_.others, name);
}

void ServedNames::add(const std::string& name, ServedAdapter adapter) {
  if (adapter.created == 0) adapter.created = now();
  adapter.id = ids_.try_emplace(name, std::ssize(ids_)).first->second;
  adapters_.insert_or_assign(name, std::move(adapter));
  removed_.erase(name);
}

bool ServedNames::remove(const std::string& name) {
  std::erase_if(defaults_, [&name](const AdapterWeight& each) { return each.name == name; });
  if (adapters_.erase(name) == 0) return false;
  removed_.insert(name);
  return true;
}

std::map<int64_t, std::string> ServedNames::ids() const {
  std::map<int64_t, std::string> names;
  for (const auto& [name, adapter] : adapters_) names.emplace(adapter.id, name);
  return names;
}

float ServedNames::default_scale(const std::string& name) const {
  const auto place = std::ranges::find(defaults_, name, &AdapterWeight::name);
  return place == defaults_.end() ? 0.0f : place->scale;
}

void ServedNames::reread() {
  if (lora_root_.empty()) return;
  std::erase_if(adapters_, [](const auto& entry) { return !entry.second.is_added; });
  for (const std::string& name : adapters_in(lora_root_)) {
    if (adapters_.contains(name) || removed_.contains(name)) continue;
    if (is_base(name)) {
      spdlog::warn("warning: the adapter {} of {} has a name of the base model, which requests get",
                   app::quote(name), lora_root_);
      continue;
    }
    add(name, {.path = lora_root_ + "/" + name});
  }
  std::erase_if(defaults_,
                [this](const AdapterWeight& each) { return !adapters_.contains(each.name); });
}

/// The adapter of this name or of "base:adapter", empty for the base model; none where the name is
/// in no list.
std::optional<std::string> ServedNames::known_as(const std::string& name) const {
  if (name.empty() || is_base(name)) return std::string();
  if (adapters_.contains(name)) return name;
  for (size_t at = name.find(':'); at != std::string::npos; at = name.find(':', at + 1)) {
    std::string adapter = name.substr(at + 1);
    if (is_base(name.substr(0, at)) && adapters_.contains(adapter)) return adapter;
  }
  return std::nullopt;
}

bool ServedNames::knows(const std::string& name) const {
  return known_as(name).has_value() || !in_root(name).empty();
}

/// Empty: the base model.
std::string ServedNames::adapter_of(const std::string& name) {
  if (std::optional<std::string> known = known_as(name)) return *std::move(known);
  if (is_version(name)) return name;
  std::string path = in_root(name);
  if (path.empty()) throw no_such_model(name);
  add(name, {.path = std::move(path)});
  return name;
}

/// Whether it is NAME@VERSION of an adapter that was loaded; the engine knows whether it has that.
bool ServedNames::is_version(const std::string& name) const {
  const size_t at = name.rfind('@');
  if (at == std::string::npos || at + 1 == name.size()) return false;
  const bool is_number = name.find_first_not_of("0123456789", at + 1) == std::string::npos;
  const auto known = adapters_.find(name.substr(0, at));
  return is_number && known != adapters_.end() && known->second.is_added;
}

std::string ServedNames::in_root(const std::string& name) const {
  if (lora_root_.empty() || removed_.contains(name)) return {};
  try {
    return find_adapter(lora_root_, name);
  } catch (const Error&) {  // its text names folders
    return {};
  }
}

void ServedNames::resolve(const ModelChoice& choice, Request& request) {
  const auto adapter = [&](const std::string& name) {
    const auto fetched = choice.fetched.find(name);
    return fetched == choice.fetched.end() ? adapter_of(name) : fetched->second->name;
  };
  if (!choice.adapters.empty()) {
    for (const AdapterWeight& each : choice.adapters) {
      if (adapter(each.name).empty()) throw no_such_model(each.name);
    }
    request.adapters = choice.adapters;
    request.merge = choice.merge;
    for (AdapterWeight& each : request.adapters) {
      if (choice.fetched.contains(each.name)) each.name = adapter(each.name);
    }
    return;
  }
  const std::string& name = choice.adapter_id.empty() ? choice.model : choice.adapter_id;
  request.adapter = adapter(name);
  if (request.adapter.empty() && name != app::kBaseName) request.adapters = defaults_;
}

std::string ServedNames::without_folders(std::string message) const {
  for (const std::string& folder : folders_) {
    for (size_t at = message.find(folder); at != std::string::npos; at = message.find(folder, at)) {
      message.erase(at, folder.size());
    }
  }
  return message;
}

std::string ServedNames::answer_name(const ModelChoice& choice) const {
  if (!choice.model.empty()) return choice.model;
  return choice.adapter_id.empty() ? base() : choice.adapter_id;
}

}  // namespace heddle::serve
