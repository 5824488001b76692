// Older versions of adapters' names: those that were replaced and stay, each as NAME@VERSION.
#include <algorithm>
#include <charconv>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/core/error.h"

#include "engine/adapters/adapter_store.h"

namespace heddle {
namespace {

/// A name that ends in '@' and a number.
struct VersionName {
  std::string name{};
  int64_t version = 0;
};

std::optional<VersionName> split_version(const std::string& name) {
  const size_t at = name.rfind('@');
  if (at == std::string::npos || at == 0) return {};
  VersionName split{.name = name.substr(0, at)};
  const char* const begin = name.data() + at + 1;
  const char* const end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(begin, end, split.version);
  const bool is_number = error == std::errc() && rest == end && *begin != '0' && *begin != '-';
  return is_number ? std::optional(std::move(split)) : std::nullopt;
}

}  // namespace

std::string version_name(const std::string& name, int64_t version) {
  return name + "@" + std::to_string(version);
}

/// With room for one version more than are kept, so that `keep` allocates nothing.
AdapterStore::Versions& AdapterStore::versions_of(const std::string& name) {
  const Lock lock(names_mutex_);
  Versions& versions = versions_[name];
  versions.kept.reserve(versions.max_kept + 1);
  return versions;
}

void AdapterStore::keep_versions(const std::string& name, size_t count) {
  Versions& versions = versions_of(name);
  versions.kept.reserve(count + 1);
  {
    const Lock lock(names_mutex_);
    versions.max_kept = count;
    if (versions.kept.size() > count) {
      versions.kept.erase(versions.kept.begin(), versions.kept.end() - ptrdiff_t(count));
    }
  }
  free_unused();
}

/// One of the folder is there anyway. With the lock, and room for it.
void AdapterStore::keep(Versions& versions, const AdapterHold& old) noexcept {
  if (old->found) return;
  const auto place = std::ranges::upper_bound(
      versions.kept, old->version, {}, [](const AdapterHold& each) { return each->version; });
  versions.kept.insert(place, old);
  if (versions.kept.size() > versions.max_kept) versions.kept.erase(versions.kept.begin());
}

AdapterHold AdapterStore::older_version(const std::string& name, int64_t version) const {
  const Lock lock(names_mutex_);
  std::string list;
  if (const auto place = versions_.find(name); place != versions_.end()) {
    for (const AdapterHold& each : place->second.kept) {
      if (each->version == version) return each;
      list += (list.empty() ? "" : ", ") + std::to_string(each->version);
    }
  }
  throw UnknownAdapter("adapter \"" + name + "\" has no older version " + std::to_string(version) +
                       " to go back to; it has " + (list.empty() ? "none" : list));
}

void AdapterStore::roll_back(const std::string& name, const AdapterHold& back) {
  std::list<AdapterHold> replaced(1);
  Versions& versions = versions_of(name);
  {
    const Lock lock(names_mutex_);
    std::erase(versions.kept, back);
    nameless_.remove(back);
    replaced.front() = std::exchange(by_name_.find(name)->second, back);
    keep(versions, replaced.front());
    nameless_.splice(nameless_.end(), replaced);
  }
  free_unused();
}

/// Null where the name is of no version that its name has or had.
AdapterHold AdapterStore::find_version(const std::string& name) const {
  const std::optional<VersionName> split = split_version(name);
  if (!split) return nullptr;
  const Lock lock(names_mutex_);
  const auto current = by_name_.find(split->name);
  if (current == by_name_.end()) return nullptr;
  if (current->second->version == split->version) return current->second;
  const auto versions = versions_.find(split->name);
  if (versions == versions_.end()) return nullptr;
  const std::vector<AdapterHold>& kept = versions->second.kept;
  const auto place = std::ranges::find(kept, split->version, &KnownAdapter::version);
  return place == kept.end() ? nullptr : *place;
}

/// The one that no row uses and that was used longest ago; false: there is none.
bool AdapterStore::drop_a_version() noexcept {
  {
    const Lock lock(names_mutex_);
    std::vector<AdapterHold>* from = nullptr;
    size_t oldest = 0;
    for (auto& [name, versions] : versions_) {
      for (size_t i = 0; i < versions.kept.size(); ++i) {
        const bool is_unused = versions.kept[i].use_count() == 2;  // here and without a name
        if (!is_unused) continue;
        if (from != nullptr && (*from)[oldest]->last_used <= versions.kept[i]->last_used) continue;
        from = &versions.kept;
        oldest = i;
      }
    }
    if (from == nullptr) return false;
    from->erase(from->begin() + ptrdiff_t(oldest));
  }
  free_unused();
  return true;
}

std::vector<AdapterState> AdapterStore::states() const {
  std::vector<AdapterState> states;
  const Lock lock(names_mutex_);
  const auto add = [&](const std::string& name, const KnownAdapter& known) {
    states.push_back({.name = name,
                      .num_bytes = known.num_bytes,
                      .is_in_memory = known.data.slot != nullptr,
                      .is_added = known.is_added(),
                      .version = known.version});
  };
  for (const auto& [name, known] : by_name_) {
    add(name, *known);
    const auto place = versions_.find(name);
    if (place == versions_.end()) continue;
    for (const AdapterHold& kept : place->second.kept) {
      add(version_name(name, kept->version), *kept);
    }
  }
  std::ranges::sort(states, {}, &AdapterState::name);
  return states;
}

}  // namespace heddle
