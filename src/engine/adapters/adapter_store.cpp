#include "engine/adapters/adapter_store.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "heddle/core/error.h"

#include "engine/adapters/row_adapters.h"
#include "engine/rows/sequence.h"
#include "files/printable.h"
#include "model/adapters/open_adapter.h"

namespace heddle {
namespace {

constexpr size_t kUsesOfRow = 2;  // of a row that is scheduled, on average

}  // namespace

AdapterStore::AdapterStore(ModelRunner& runner, const model::ModelFiles& files,
                           const RowText& text_of_model, const Limits& limits)
    : runner_(runner),
      files_(files),
      text_of_model_(text_of_model),
      names_(files.names()),
      folders_(limits.folders),
      bounds_(limits.bounds),
      evictable_memory_(limits.evictable_memory),
      strict_(limits.strict),
      on_warning_(limits.on_warning),
      on_receipt_(limits.on_receipt),
      tiers_(runner, files,
             {.memory_bytes = limits.bounds.memory_bytes, .host_memory_bytes = limits.host_memory},
             norm_worker_.is_ending(),
             [this](const std::string& path, const AdapterReceipt& receipt) {
               report_read(path, receipt);
             }) {
  reserve(0);
}

void AdapterStore::reserve(size_t num_more) {
  size_t num_adapters = num_more;
  {
    const Lock lock(names_mutex_);
    num_adapters += by_name_.size() + nameless_.size() + copied_.size() + merges_.size();
  }
  tiers_.reserve(num_adapters);
  if (schedule_.rows.capacity() > 0 && scheduled_.capacity() >= num_adapters) return;
  schedule_.reserve(2 * num_adapters, kUsesOfRow * kMaxScheduledRows + kMaxAdaptersOfRow,
                    kMaxScheduledRows);
  scheduled_.reserve(2 * num_adapters);
}

std::string AdapterStore::made_for_another(const std::string& name, const std::string& path,
                                           const std::string& base_model) const {
  const std::string& own = files_.config().name;
  return "adapter " + name + " (" + path + ") was made for " + files::printable(base_model) +
         ", the model is " +
         (own.empty() ? files_.path() : files::printable(own) + " (" + files_.path() + ")");
}

void AdapterStore::check_strict(const std::vector<std::string>& warnings) const {
  if (strict_ && !warnings.empty()) throw_error(ErrorCode::kInvalidArgument, warnings.front());
}

void AdapterStore::check_free(const std::string& name) const {
  const AdapterHold known = known_under(name);
  HEDDLE_CHECK(known == nullptr || known->found, "adapter name \"", name, "\" is given twice");
}

AdapterInfo AdapterStore::add(const std::string& name, Prepared prepared, bool may_replace) {
  const AdapterHold& known = prepared.known;
  AdapterInfo& info = prepared.info;
  HEDDLE_CHECK(!name.empty(), known->path, ": an adapter needs a name");
  HEDDLE_CHECK(prepared.identity.receipt != nullptr, known->path,
               ": was not checked (Engine::check_adapter)");
  if (!info.names_this_model) {
    info.warnings.insert(info.warnings.begin(),
                         made_for_another(name, info.folder, info.base_model));
  }
  check_strict(info.warnings);
  if (!may_replace) check_free(name);
  begin_copy(prepared);
  if (prepared.copied == nullptr) make_room_for_added(*known);
  // Memory for the name first, so that nothing can fail once the adapter is in its slot.
  info.name = name;
  std::map<std::string, AdapterHold> added{{name, known}};
  std::list<AdapterHold> replaced(1);
  Versions& versions = versions_of(name);
  make_resident(prepared);
  copied_.remove(known);
  {
    const Lock lock(names_mutex_);
    info.version = known->version = ++versions.last;
    by_name_.merge(added);
    if (!added.empty()) {  // the name is in use
      replaced.front() = std::exchange(by_name_.find(name)->second, known);
      keep(versions, replaced.front());
      nameless_.splice(nameless_.end(), replaced);
    }
  }
  free_unused();
  measure_later(*known);
  return std::move(info);
}

bool AdapterStore::remove(const std::string& name) {
  {
    const Lock lock(names_mutex_);
    const auto place = by_name_.find(name);
    if (place == by_name_.end()) return false;
    nameless_.push_back(place->second);
    by_name_.erase(place);
    versions_.erase(name);
  }
  free_unused();
  return true;
}

void AdapterStore::free_unused() noexcept {
  std::list<AdapterHold> unused;
  {
    const Lock lock(names_mutex_);
    // No thread can get another hold of an adapter meanwhile.
    const auto is_unused = [](const AdapterHold& known) {
      return known.use_count() == 1 && !known->is_in_flight();
    };
    for (std::list<AdapterHold>* const held : {&nameless_, &copied_}) {
      for (auto next = held->begin(); next != held->end();) {
        const auto known = next++;
        if (is_unused(*known)) unused.splice(unused.end(), *held, known);
      }
    }
    const auto is_forgotten = [&](const auto& entry) {
      const AdapterHold& known = entry.second;
      if (known->is_added() || !is_unused(known)) return false;
      known->failure = nullptr;  // of rows that are gone
      return known->data.stage() == AdapterStage::kStored;
    };
    if (!folders_.is_empty()) std::erase_if(by_name_, is_forgotten);
    std::erase_if(merges_, is_forgotten);
  }
  for (const AdapterHold& known : unused) {
    if (known->is_added()) keep_spare(*known);  // which the tiers do not count
    tiers_.drop(*known);
    tiers_.drop_host_copy(*known);
  }
}

AdapterHold AdapterStore::known_under(const std::string& name) const {
  const Lock lock(names_mutex_);
  const auto place = by_name_.find(name);
  return place == by_name_.end() ? nullptr : place->second;
}

AdapterHold AdapterStore::find(const std::string& name) {
  if (name.empty()) return nullptr;
  if (AdapterHold known = known_under(name); known != nullptr && !known->found) return known;
  if (AdapterHold known = find_version(name)) return known;
  if (folders_.is_empty()) throw UnknownAdapter("unknown adapter \"" + name + "\"");
  return find_in_folder(name);
}

/// The one that is known where its files are unchanged since, else one that is read now.
AdapterHold AdapterStore::find_in_folder(const std::string& name) {
  const Lock reading(folder_mutex_);
  const std::string path = folders_.find(name);
  const int64_t begin = files::file_time_now();
  files::FileStamps stamps = stamps_of(path);
  const bool is_settled = files::are_settled(stamps, begin);
  const AdapterHold before = known_under(name);
  if (before != nullptr && before->path == path && before->found == stamps) {
    // One that was found in files just written counts until they are settled; from then on it does
    // where a read has found them unchanged.
    if (!before->is_unproven || !is_settled) return before;
  }
  AdapterHold known = read_facts(name, path, std::move(stamps), is_settled);
  const int64_t host_memory = tiers_.limits().host_memory_bytes;
  if (known->has_host_copies && known->num_bytes > host_memory) {
    throw_error(ErrorCode::kOutOfMemory, path, ": needs ", known->num_bytes,
                " bytes of host memory for adapters, there are ", host_memory,
                " (adapter_host_memory)");
  }
  {
    const Lock lock(names_mutex_);
    const auto [place, is_new] = by_name_.emplace(name, known);
    if (!is_new && !place->second->found) return place->second;  // it was added meanwhile
    if (!is_new) {
      nameless_.push_back(place->second);
      place->second = known;
    }
  }
  read_ahead(path);
  return known;
}

/// What a row is checked with. Does not wait until the files are settled: that is for the read of
/// the weights, which runs concurrently with the steps.
AdapterHold AdapterStore::read_facts(const std::string& name, const std::string& path,
                                     files::FileStamps stamps, bool is_settled) const {
  const files::FolderBounds bounds = folders_.bounds_of(path);
  std::optional<uint64_t> digest;
  if (!is_settled) digest = digest_of(path, bounds);
  const auto opened = model::open_adapter(path, files_.config(), bounds);
  // Rows of a vocabulary are compared with the model's, a score head is kept.
  if (opened->replaces_rows() || opened->score().is_present()) opened->load();
  AdapterHold known = describe(path, bounds, *opened);
  known->text = text_of(*known);
  known->young_digest = digest;
  known->is_unproven = digest.has_value();
  HEDDLE_CHECK(stamps_of(path) == stamps && (!digest || digest_of(path, bounds) == *digest), path,
               ": has changed while it was read; ask for it again");
  known->found = std::move(stamps);
  std::vector<std::string> warnings = warnings_of(*opened);
  if (!names_.may_be(opened->base_model())) {
    warnings.push_back(made_for_another(name, path, opened->base_model()));
  }
  check_strict(warnings);
  if (on_warning_) std::ranges::for_each(warnings, on_warning_);
  return known;
}

void AdapterStore::check_ever_fit(const std::vector<AdapterHold>& adapters) const {
  int64_t wanted = 0, added = 0;
  for (const AdapterHold& known : adapters) wanted += known->is_added() ? 0 : known->num_bytes;
  if (wanted == 0) return;
  {
    // Those that were added stay, so what they take is never free.
    const Lock lock(names_mutex_);
    for (const auto& [name, known] : by_name_) added += known->found ? 0 : known->num_bytes;
  }
  const int64_t left = std::min(bounds_.memory_bytes - added, evictable_memory_);
  if (wanted <= left) return;
  throw_error(ErrorCode::kOutOfMemory, adapters.front()->path,
              adapters.size() > 1 ? " and those beside it need " : ": needs ", wanted,
              " bytes of adapter memory, there are ", left,
              " (adapter_memory: ", std::min(bounds_.memory_bytes, evictable_memory_), " bytes)");
}

std::span<const Admission> AdapterStore::schedule(std::span<const Sequence* const> rows) noexcept {
  if (tiers_.poll() || !copied_.empty()) free_unused();
  ++num_schedules_;
  schedule_.clear();
  for (KnownAdapter* known : tiers_.on_device()) add_to_schedule(*known);
  rows = rows.first(std::min(rows.size(), kMaxScheduledRows));
  for (const Sequence* row : rows) {
    for (const AdapterHold& known : row->adapters.holds) {
      if (std::exchange(known->has_told_failure, false)) known->failure = nullptr;
    }
  }
  for (const Sequence* row : rows) {
    const auto begin = static_cast<int32_t>(schedule_.uses.size());
    // Rows of large lists may be too many for one schedule.
    if (schedule_.uses.size() + row->adapters.holds.size() > schedule_.uses.capacity()) break;
    for (const AdapterHold& known : row->adapters.holds)
      schedule_.uses.push_back(add_to_schedule(*known));
    schedule_.rows.push_back({begin, static_cast<int32_t>(schedule_.uses.size())});
  }
  AdapterBounds bounds = bounds_;
  bounds.memory_bytes = memory_limit();
  schedule_adapters(schedule_, bounds);
  // A row that starts gets the failure.
  for (size_t i = 0; i < schedule_.rows.size(); ++i) {
    const auto has_failed = [](const AdapterHold& known) { return known->failure != nullptr; };
    if (std::ranges::any_of(rows[i]->adapters.holds, has_failed))
      schedule_.admissions[i] = Admission::kStarts;
  }
  carry_out();
  for (KnownAdapter* known : scheduled_) known->number = -1;
  scheduled_.clear();
  return schedule_.admissions;
}

/// Its number in the schedule.
int32_t AdapterStore::add_to_schedule(KnownAdapter& known) noexcept {
  if (known.number >= 0) return known.number;
  known.number = static_cast<int32_t>(scheduled_.size());
  scheduled_.push_back(&known);
  const auto num_holds = static_cast<int64_t>(known.data.slot.use_count());
  schedule_.adapters.push_back({.num_bytes = known.num_bytes,
                                .stage = AdapterTiers::stage(known),
                                .stays = known.is_added(),
                                .num_running = std::max<int64_t>(num_holds - 1, 0),
                                .last_used = known.last_used});
  return known.number;
}

/// Begins what is scheduled, as far as it can be begun now.
void AdapterStore::carry_out() noexcept {
  for (size_t i = 0; i < schedule_.rows.size(); ++i) {
    for (int32_t use = schedule_.rows[i].begin; use < schedule_.rows[i].end; ++use) {
      KnownAdapter& known = *scheduled_[size_t(schedule_.uses[size_t(use)])];
      if (known.wanted_in == num_schedules_) continue;
      known.wanted_in = num_schedules_;
      known.wanted_by = i;
    }
  }
  const int64_t limit = memory_limit();
  auto evicts = schedule_.evicts.begin();
  for (const int32_t number : schedule_.brings) {
    KnownAdapter& known = *scheduled_[size_t(number)];
    if (known.failure) continue;
    while (known.num_bytes > limit - tiers_.device_bytes()) {
      if (evicts == schedule_.evicts.end()) break;
      tiers_.evict(*scheduled_[size_t(*evicts++)]);
    }
    if (known.num_bytes > limit - tiers_.device_bytes()) break;
    if (!tiers_.begin_move(known)) break;
  }
  for (const int32_t number : schedule_.reads) {
    KnownAdapter& known = *scheduled_[size_t(number)];
    if (!known.failure) tiers_.begin_read(known);
  }
}

void AdapterStore::take(Sequence& row) {
  std::vector<WeightsHold> held;
  held.reserve(row.adapters.holds.size());
  for (const AdapterHold& known : row.adapters.holds) {
    if (known->failure) {
      known->has_told_failure = true;
      std::rethrow_exception(known->failure);
    }
    if (known->data.slot == nullptr) {
      check_ever_fit(row.adapters.holds);
      throw_error(ErrorCode::kOutOfMemory, known->path, ": needs ", known->num_bytes,
                  " bytes of adapter memory, ", tiers_.device_bytes(), " of ", memory_limit(),
                  " are in use");
    }
    held.push_back(known->data.slot);
  }
  std::string& digests = row.answer.completion.adapter_digest;
  digests.clear();
  for (const AdapterHold& known : row.adapters.holds) {
    digests += (digests.empty() ? "" : "+") + known->data.receipt->facts().digest;
  }
  for (const AdapterHold& known : row.adapters.holds) tiers_.use(*known);
  for (size_t i = 0; i < row.adapters.uses.size(); ++i) row.adapters.uses[i].slot = *held[i];
  row.adapters.slot = held.empty() ? kNoAdapter : *held.front();
  row.adapters.weights = std::move(held);
}

Digest AdapterStore::content(const Sequence& row) const noexcept {
  const RowAdapters& adapters = row.adapters;
  if (adapters.holds.empty()) return {};
  Hasher hasher(std::as_const(runner_).adapters().secret());
  for (size_t i = 0; i < adapters.holds.size(); ++i) {
    const auto [low, high] = adapters.holds[i]->data.digest;
    hasher.add(low).add(high).add(adapters.uses.empty() ? 1.0f : adapters.uses[i].scale);
  }
  return hasher.digest();
}

void AdapterStore::wait_and_take(Sequence& row) {
  const Sequence* const rows[] = {&row};
  while (schedule(rows).front() == Admission::kWaits && wait()) {
  }
  take(row);
}

void AdapterStore::prefetch(const Sequence& row) noexcept {
  for (const AdapterHold& known : row.adapters.holds) {
    const bool is_stored = known->data.stage() == AdapterStage::kStored && !known->read.valid();
    if (known->is_added() || !is_stored || known->failure || !tiers_.has_room_to_read(*known)) {
      continue;
    }
    if (known->has_host_copies) {
      tiers_.begin_read(*known);
    } else if (known->num_bytes <= memory_limit() - tiers_.device_bytes()) {
      static_cast<void>(tiers_.begin_move(*known));
    }
  }
}

/// Frees weights that no running row uses until it fits, in the lists of the tiers too.
void AdapterStore::make_room_for_added(const KnownAdapter& known) {
  free_unused();
  reserve(1);
  while (known.num_bytes > bounds_.memory_bytes - tiers_.device_bytes()) {
    KnownAdapter* oldest = nullptr;
    for (KnownAdapter* other : tiers_.on_device()) {
      const bool may_go = !other->is_added() && other->data.slot.use_count() == 1;
      if (may_go && (oldest == nullptr || other->last_used < oldest->last_used)) oldest = other;
    }
    if (oldest != nullptr) {
      tiers_.evict(*oldest);
    } else if (!drop_a_copy() && !drop_a_version()) {
      throw_error(ErrorCode::kOutOfMemory, known.path, ": needs ", known.num_bytes,
                  " bytes of adapter memory, ", bounds_.memory_bytes - tiers_.device_bytes(),
                  " of ", bounds_.memory_bytes,
                  " are not in use; a larger adapter_memory (--adapter-memory) holds more");
    }
  }
}

bool AdapterStore::has(const std::string& name) const { return known_under(name) != nullptr; }

std::vector<std::string> AdapterStore::names() const {
  std::vector<std::string> names;
  const Lock lock(names_mutex_);
  for (const auto& [name, known] : by_name_) names.push_back(name);
  return names;
}

}  // namespace heddle
