#include "engine/adapters/adapter_store.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <system_error>
#include <utility>

#include "heddle/core/error.h"

#include "engine/sequence.h"
#include "model/adapters/open_adapter.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMostLoads = 2;  // that are under way at once: they take time from the steps

}  // namespace

struct AdapterLoad {
  Clock::time_point begin = Clock::now();
  std::future<ModelRunner::PreparedAdapter> weights{};

  [[nodiscard]] bool has_ended() const {
    return weights.wait_for(Clock::duration::zero()) == std::future_status::ready;
  }
};

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
AdapterHold AdapterStore::describe(const std::string& path, const model::Adapter& opened) const {
  const model::DecoderConfig& config = files_.config();
  opened.check_fits(config.dims());
  const model::StoredValues& vocabulary = opened.embedding().weight;
  const int64_t num_tokens = vocabulary.is_present() ? vocabulary.rows : config.vocab_size;
  const model::StoredValues& head = opened.head().weight;
  const std::lock_guard lock(tokenizers_mutex_);
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

AdapterStore::Prepared AdapterStore::prepare(const std::string& path) const {
  const auto opened = model::open_adapter(path, files_.config());
  Prepared prepared{.known = describe(path, *opened),
                    .info = {.name = {},
                             .folder = path,
                             .base_model = opened->base_model(),
                             .names_this_model = names_.may_be(opened->base_model())}};
  prepared.weights = runner_.prepare_adapter(*opened);
  return prepared;
}

void AdapterStore::check_free(const std::string& name) const {
  const auto place = by_name_.find(name);
  HEDDLE_CHECK(place == by_name_.end() || place->second->found, "adapter name \"", name,
               "\" is given twice");
}

AdapterInfo AdapterStore::add(const std::string& name, Prepared prepared, bool may_replace) {
  const AdapterHold& known = prepared.known;
  HEDDLE_CHECK(!name.empty(), known->path, ": an adapter needs a name");
  if (!may_replace) check_free(name);
  if (!make_room(known->num_bytes)) {
    throw_error(ErrorCode::kOutOfMemory, known->path, ": needs ", known->num_bytes,
                " bytes of adapter memory, ", memory_bytes_ - bytes_in_memory(), " of ",
                memory_bytes_, " are not in use");
  }
  // Name and room first, so that nothing can fail once the adapter is in its slot.
  prepared.info.name = name;
  nameless_.reserve(nameless_.size() + 1);
  const auto [place, is_new] = by_name_.emplace(name, nullptr);
  try {
    put(*known, std::move(prepared.weights));
  } catch (...) {
    if (is_new) by_name_.erase(place);
    throw;
  }
  AdapterHold old = std::exchange(place->second, known);
  prepared.known = nullptr;
  if (old != nullptr) nameless_.push_back(std::move(old));
  free_unused();
  return std::move(prepared.info);
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
  const auto end_unwanted = [this](const AdapterHold& known) {
    const bool is_wanted = known.use_count() > 1;  // then its row ends the load, and is told
    if (is_wanted || known->load == nullptr || !known->load->has_ended()) return;
    try {
      end_load(*known);
    } catch (const std::exception&) {  // nobody is there to be told
    }
  };
  for (const auto& [name, known] : by_name_) end_unwanted(known);
  std::ranges::for_each(nameless_, end_unwanted);
  std::erase_if(nameless_, [this](const AdapterHold& known) {
    if (known.use_count() > 1 || known->load != nullptr) return false;
    drop(*known);
    return true;
  });
  if (!folder_) return;
  std::erase_if(by_name_, [](const auto& entry) {
    const AdapterHold& known = entry.second;
    return known->found && known->weights == nullptr && known->load == nullptr &&
           known.use_count() == 1;
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
  bool has_all = true;
  for (const AdapterHold& hold : row.adapters) {
    KnownAdapter& known = *hold;
    if (known.load != nullptr && known.load->has_ended()) end_load(known);
    if (known.weights == nullptr && known.load == nullptr) {
      check_ever_fit(row.adapters);
      if (num_loads_under_way() >= kMostLoads) return false;
      if (!make_room(known.num_bytes)) {
        if (others_run || num_loads_under_way() > 0) return false;
        throw_error(ErrorCode::kOutOfMemory, known.path, ": needs ", known.num_bytes,
                    " bytes of adapter memory, ", bytes_in_memory(), " of ", memory_bytes_,
                    " are in use");
      }
      begin_load(known);
    }
    known.last_used = ++num_uses_;
    has_all = has_all && known.weights != nullptr;
    held.push_back(known.weights);
  }
  if (!has_all) return false;
  for (size_t i = 0; i < row.uses.size(); ++i) row.uses[i].slot = held[i]->slot;
  row.slot = held.empty() ? kNoAdapter : held.front()->slot;
  row.weights = std::move(held);
  return true;
}

void AdapterStore::prefetch(const Sequence& row) noexcept {
  for (const AdapterHold& known : row.adapters) {
    const bool is_wanted = known->found && known->weights == nullptr && known->load == nullptr;
    const bool has_room = known->num_bytes <= memory_bytes_ - bytes_in_memory();
    if (!is_wanted || !has_room || num_loads_under_way() >= kMostLoads) continue;
    try {
      begin_load(*known);
    } catch (const std::exception&) {  // the row's start tries again, and tells what is wrong
    }
  }
}

bool AdapterStore::wait_for_load() noexcept {
  const AdapterLoad* under_way = nullptr;
  for_each([&](const KnownAdapter& known) {
    if (known.load != nullptr) under_way = known.load.get();
  });
  if (under_way == nullptr) return false;
  under_way->weights.wait();
  return true;
}

int64_t AdapterStore::num_loads_under_way() const {
  int64_t count = 0;
  for_each([&](const KnownAdapter& known) {
    count += known.load != nullptr && !known.load->has_ended() ? 1 : 0;
  });
  return count;
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
    ++counts_.num_evictions;
  }
  return true;
}

/// Reads the weights of an adapter of the folder, as its rows were checked with, beside the steps.
void AdapterStore::begin_load(KnownAdapter& known) {
  const auto read = [this, path = known.path, found = *known.found] {
    const auto check = [&] {
      HEDDLE_CHECK(stamps_of(path) == found, path,
                   ": has changed while the request waited; submit it again");
    };
    check();
    const auto opened = model::open_adapter(path, files_.config());
    opened->check_fits(files_.config().dims());
    ModelRunner::PreparedAdapter weights = runner_.prepare_adapter(*opened);
    check();
    return weights;
  };
  auto load = std::make_shared<AdapterLoad>();
  load->weights = std::async(std::launch::async, read);
  known.load = std::move(load);
}

/// The weights of a load that has ended into their slot. Throws what went wrong.
void AdapterStore::end_load(KnownAdapter& known) {
  const std::shared_ptr<AdapterLoad> load = std::exchange(known.load, nullptr);
  put(known, load->weights.get());
  const std::chrono::duration<double> seconds = Clock::now() - load->begin;
  counts_.seconds += seconds.count();
}

void AdapterStore::put(KnownAdapter& known, ModelRunner::PreparedAdapter prepared) {
  auto weights = std::make_shared<AdapterWeights>();
  weights->slot = runner_.add_adapter(std::move(prepared));
  known.weights = std::move(weights);
  ++counts_.num_loads;
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

std::vector<AdapterState> AdapterStore::states() const {
  std::vector<AdapterState> states;
  for (const auto& [name, known] : by_name_) {
    states.push_back({name, known->num_bytes, known->weights != nullptr, !known->found});
  }
  return states;
}

int64_t AdapterStore::num_in_memory() const {
  int64_t count = 0;
  for_each([&](const KnownAdapter& known) { count += known.weights != nullptr ? 1 : 0; });
  return count;
}

int64_t AdapterStore::bytes_in_memory() const {
  int64_t bytes = 0;
  for_each([&](const KnownAdapter& known) {
    const bool is_there = known.weights != nullptr || known.load != nullptr;
    bytes += is_there ? known.num_bytes : 0;
  });
  return bytes;
}

}  // namespace heddle
