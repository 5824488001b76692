// The functions of AdapterStore that are about merges.
#include <algorithm>
#include <memory>
#include <utility>

#include "heddle/core/error.h"

#include "engine/adapters/adapter_store.h"
#include "model/adapters/contents/adapter_contents.h"
#include "model/adapters/open_adapter.h"

namespace heddle {

AdapterHold AdapterStore::find_merge(const AdapterList& list, const std::vector<AdapterHold>& parts,
                                     const AdapterMerge& merge) {
  const Lock looking(merges_mutex_);
  MergeRecipe recipe{.parts = {}, .rule = merge_rule(merge)};
  for (size_t i = 0; i < list.size(); ++i) {
    KnownAdapter& known = *parts[i];
    HEDDLE_CHECK(known.runs_alone.empty(), "adapters[", i, "] is \"", list[i].name,
                 "\", which has ", known.runs_alone, ": it cannot be merged");
    recipe.parts.push_back({.name = list[i].name,
                            .path = known.path,
                            .bounds = known.bounds,
                            .given = known.given,
                            .content = content_of(known),
                            .weight = list[i].scale});
  }
  const auto [low, high] = recipe.digest(std::as_const(runner_).adapters().secret());
  const std::pair key(low, high);
  {
    const Lock lock(names_mutex_);
    if (const auto place = merges_.find(key); place != merges_.end()) return place->second;
  }
  AdapterHold known = describe_merge(std::move(recipe));
  const Lock lock(names_mutex_);
  merges_.emplace(key, known);
  return known;
}

/// What the weights of an adapter are, which of one of the folder is not known before it is read.
Digest AdapterStore::content_of(KnownAdapter& known) const {
  if (known.content) return *known.content;
  const auto opened = model::open_adapter(known.path, files_.config(), known.bounds);
  opened->load();
  const auto secret = std::as_const(runner_).adapters().secret();
  const Digest content = model::AdapterContents(*opened, {}, secret).digest();
  HEDDLE_CHECK(stamps_of(known.path) == *known.found, known.path,
               ": has changed while it was read; ask for it again");
  known.content = content;
  return content;
}

AdapterHold AdapterStore::describe_merge(MergeRecipe recipe) const {
  const auto opened = open_merge(recipe, files_);
  AdapterHold known = describe(recipe.name(), {}, *opened);
  // Where there is no room for copies in host memory it is made into the device's memory.
  known->has_host_copies =
      known->has_host_copies && known->num_bytes <= tiers_.limits().host_memory_bytes;
  known->recipe = std::make_shared<const MergeRecipe>(std::move(recipe));
  return known;
}

/// Of all adapters on the device as things are: those that were added, and on top of them as much
/// as those that may be evicted have.
int64_t AdapterStore::memory_limit() const noexcept {
  int64_t added = 0;
  for (const KnownAdapter* known : tiers_.on_device()) {
    added += known->is_added() ? known->num_bytes : 0;
  }
  return added + std::min(bounds_.memory_bytes - added, evictable_memory_);
}

}  // namespace heddle
