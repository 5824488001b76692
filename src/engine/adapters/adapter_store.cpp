#include "engine/adapters/adapter_store.h"

#include <utility>

#include "heddle/core/error.h"

#include "model/adapters/open_adapter.h"

namespace heddle {

AdapterInfo AdapterStore::load(const std::string& name, const std::string& folder) {
  HEDDLE_CHECK(!name.empty(), folder, ": an adapter needs a name");
  const model::DecoderConfig& config = files_.config();
  const auto opened = model::open_adapter(folder, config);
  opened->check_fits(config.dims());
  const model::StoredValues& vocabulary = opened->embedding().weight;
  const int64_t num_tokens = vocabulary.is_present() ? vocabulary.rows : config.vocab_size;
  const auto adapter = std::make_shared<KnownAdapter>(
      KnownAdapter{.text = text_of_adapter(text_of_model_, files_, folder, num_tokens),
                   .num_tokens = num_tokens,
                   .runs_alone = runner_.runs_alone(*opened),
                   .has_invocation = !opened->invocation_tokens().empty()});
  const std::string& base_model = opened->base_model();
  AdapterInfo info{.name = name,
                   .folder = folder,
                   .base_model = base_model,
                   .names_this_model = names_.may_be(base_model)};
  // Name and room first, so that nothing can fail once the adapter is in its slot.
  nameless_.reserve(nameless_.size() + 1);
  const auto [place, is_new] = by_name_.emplace(name, nullptr);
  try {
    adapter->slot = runner_.add_adapter(*opened);
  } catch (...) {
    if (is_new) by_name_.erase(place);
    throw;
  }
  AdapterHold before = std::exchange(place->second, adapter);
  if (before != nullptr) nameless_.push_back(std::move(before));
  free_unused();
  return info;
}

bool AdapterStore::remove(const std::string& name) {
  const auto place = by_name_.find(name);
  if (place == by_name_.end()) return false;
  nameless_.push_back(place->second);
  by_name_.erase(place);
  free_unused();
  return true;
}

void AdapterStore::free_unused() noexcept {
  std::erase_if(nameless_, [this](const AdapterHold& adapter) {
    if (adapter.use_count() > 1) return false;
    runner_.remove_adapter(adapter->slot);
    return true;
  });
}

AdapterHold AdapterStore::find(const std::string& name) const {
  if (name.empty()) return nullptr;
  const auto place = by_name_.find(name);
  HEDDLE_CHECK(place != by_name_.end(), "unknown adapter \"", name, "\"");
  return place->second;
}

std::vector<std::string> AdapterStore::names() const {
  std::vector<std::string> names;
  for (const auto& [name, adapter] : by_name_) names.push_back(name);
  return names;
}

}  // namespace heddle
