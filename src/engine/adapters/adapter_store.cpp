#include "engine/adapters/adapter_store.h"

#include <chrono>
#include <utility>

#include "heddle/core/error.h"

#include "engine/sequence.h"
#include "model/adapters/open_adapter.h"

namespace heddle {

AdapterStore::AdapterStore(ModelRunner& runner, const model::ModelFiles& files,
                           const RowText& text_of_model, const Limits& limits)
    : runner_(runner),
      files_(files),
      text_of_model_(text_of_model),
      names_(files.names()),
      memory_bytes_(limits.memory_bytes) {
  if (!limits.folder.empty()) folder_.emplace(limits.folder);
}

/// What is known of an adapter without its weights.
AdapterHold AdapterStore::describe(const std::string& path, const model::Adapter& opened) {
  const model::DecoderConfig& config = files_.config();
  opened.check_fits(config.dims());
  const model::StoredValues& vocabulary = opened.embedding().weight;
  const int64_t num_tokens = vocabulary.is_present() ? vocabulary.rows : config.vocab_size;
  const model::StoredValues& head = opened.head().weight;
  return std::make_shared<KnownAdapter>(
      KnownAdapter{.path = path,
                   .text = text_of_adapter(text_of_model_, files_, path, num_tokens, tokenizers_),
                   .num_tokens = num_tokens,
                   .num_logits = head.is_present() ? head.rows : config.vocab_size,
                   .num_bytes = runner_.adapter_bytes(opened),
                   .runs_alone = runner_.runs_alone(opened),
                   .invocation = opened.invocation_tokens(),
                   .has_embedding = !opened.embedding().is_empty(),
                   .found = {}});
}

AdapterInfo AdapterStore::add(const std::string& name, const std::string& path, bool may_replace) {
  HEDDLE_CHECK(!name.empty(), path, ": an adapter needs a name");
  const auto before = by_name_.find(name);
  const bool is_taken = before != by_name_.end() && !before->second->found;
  HEDDLE_CHECK(may_replace || !is_taken, "adapter name \"", name, "\" is given twice");
  const auto opened = model::open_adapter(path, files_.config());
  const AdapterHold known = describe(path, *opened);
  AdapterInfo info{.name = name,
                   .folder = path,
                   .base_model = opened->base_model(),
                   .names_this_model = names_.may_be(opened->base_model())};
  if (!make_room(known->num_bytes)) {
    throw_error(ErrorCode::kOutOfMemory, path, ": needs ", known->num_bytes,
                " bytes of adapter memory, ", memory_bytes_ - bytes_in_memory(), " of ",
                memory_bytes_, " are not in use");
  }
  // Name and room first, so that nothing can fail once the adapter is in its slot.
  nameless_.reserve(nameless_.size() + 1);
  const auto [place, is_new] = by_name_.emplace(name, nullptr);
  try {
    load(*known, *opened);
  } catch (...) {
    if (is_new) by_name_.erase(place);
    throw;
  }
  AdapterHold old = std::exchange(place->second, known);
  if (old != nullptr) nameless_.push_back(std::move(old));
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
  std::erase_if(nameless_, [this](const AdapterHold& known) {
    if (known.use_count() > 1) return false;
    drop(*known);
    return true;
  });
  if (!folder_) return;
  std::erase_if(by_name_, [](const auto& entry) {
    const AdapterHold& known = entry.second;
    return known->found && known->weights == nullptr && known.use_count() == 1;
  });
}

AdapterHold AdapterStore::find(const std::string& name) {
  if (name.empty()) return nullptr;
  const auto place = by_name_.find(name);
  if (place != by_name_.end() && !place->second->found) return place->second;
  HEDDLE_CHECK(folder_, "unknown adapter \"", name, "\"");
  return find_in_folder(name);
}

/// The one that is known where its files are the same as then, else one that is read now.
AdapterHold AdapterStore::find_in_folder(const std::string& name) {
  free_unused();  // of requests that were only checked
  const std::string path = folder_->find(name);
  FileStamps stamps = stamps_of(path);
  const auto before = by_name_.find(name);
  const bool is_known = before != by_name_.end();
  if (is_known && before->second->path == path && before->second->found == stamps) {
    return before->second;
  }
  AdapterHold known;
  {
    const auto opened = model::open_adapter(path, files_.config());
    known = describe(path, *opened);
  }
  known->found = std::move(stamps);
  if (is_known) {
    nameless_.push_back(before->second);
    before->second = known;
  } else {
    by_name_.emplace(name, known);
  }
  read_ahead(path);
  return known;
}

void AdapterStore::check_ever_fit(const std::vector<AdapterHold>& adapters) const {
  int64_t wanted = 0, added = 0;
  for (const AdapterHold& known : adapters) wanted += known->found ? known->num_bytes : 0;
  if (wanted == 0) return;
  // Those that were added stay, so what they take is never free.
  for (const auto& [name, known] : by_name_) added += known->found ? 0 : known->num_bytes;
  if (wanted <= memory_bytes_ - added) return;
  throw_error(ErrorCode::kOutOfMemory, adapters.front()->path,
              adapters.size() > 1 ? " and those beside it need " : ": needs ", wanted,
              " bytes of adapter memory, there are ", memory_bytes_ - added,
              " (adapter_memory: ", memory_bytes_, " bytes)");
}

bool AdapterStore::take(Sequence& row, bool others_run) {
  std::vector<WeightsHold> held;
  held.reserve(row.adapters.size());
  for (const AdapterHold& hold : row.adapters) {
    KnownAdapter& known = *hold;
    if (known.weights == nullptr) {
      check_ever_fit(row.adapters);
      if (!make_room(known.num_bytes)) {
        if (others_run) return false;
        throw_error(ErrorCode::kOutOfMemory, known.path, ": needs ", known.num_bytes,
                    " bytes of adapter memory, ", bytes_in_memory(), " of ", memory_bytes_,
                    " are in use");
      }
      read_again(known);
    }
    known.last_used = ++num_uses_;
    held.push_back(known.weights);
  }
  for (size_t i = 0; i < row.uses.size(); ++i) row.uses[i].slot = held[i]->slot;
  row.slot = held.empty() ? kNoAdapter : held.front()->slot;
  row.weights = std::move(held);
  return true;
}

/// Frees weights that no running row uses until these bytes fit; false, where they do not.
bool AdapterStore::make_room(int64_t num_bytes) noexcept {
  while (num_bytes > memory_bytes_ - bytes_in_memory()) {
    KnownAdapter* oldest = nullptr;
    for_each([&](KnownAdapter& known) {
      const bool may_go = known.found && known.weights.use_count() == 1;
      if (may_go && (oldest == nullptr || known.last_used < oldest->last_used)) oldest = &known;
    });
    if (oldest == nullptr) return false;
    drop(*oldest);
  }
  return true;
}

void AdapterStore::load(KnownAdapter& known, const model::Adapter& opened) {
  const auto begin = std::chrono::steady_clock::now();
  auto weights = std::make_shared<AdapterWeights>();
  weights->slot = runner_.add_adapter(opened);
  known.weights = std::move(weights);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  ++counts_.num_loads;
  counts_.seconds += seconds.count();
}

/// The weights of an adapter of the folder, as its rows were checked with.
void AdapterStore::read_again(KnownAdapter& known) {
  const auto check = [&] {
    HEDDLE_CHECK(stamps_of(known.path) == *known.found, known.path,
                 ": has changed while the request waited; submit it again");
  };
  check();
  {
    const auto opened = model::open_adapter(known.path, files_.config());
    opened->check_fits(files_.config().dims());
    load(known, *opened);
  }
  try {
    check();
  } catch (...) {
    drop(known);
    throw;
  }
}

void AdapterStore::drop(KnownAdapter& known) noexcept {
  if (known.weights == nullptr) return;
  runner_.remove_adapter(known.weights->slot);
  known.weights = nullptr;
}

std::vector<std::string> AdapterStore::names() const {
  std::vector<std::string> names;
  for (const auto& [name, known] : by_name_) names.push_back(name);
  return names;
}

int64_t AdapterStore::num_in_memory() const {
  int64_t count = 0;
  for_each([&](const KnownAdapter& known) { count += known.weights != nullptr ? 1 : 0; });
  return count;
}

int64_t AdapterStore::bytes_in_memory() const {
  int64_t bytes = 0;
  for_each(
      [&](const KnownAdapter& known) { bytes += known.weights != nullptr ? known.num_bytes : 0; });
  return bytes;
}

}  // namespace heddle
