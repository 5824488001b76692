#include "engine/adapters/adapter_store.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "heddle/core/error.h"

#include "engine/adapters/row_adapters.h"
#include "engine/adapters/settled_read.h"
#include "engine/rows/sequence.h"
#include "files/printable.h"
#include "model/adapters/open_adapter.h"

namespace heddle {
namespace {

constexpr size_t kUsesOfRow = 2;  // of a row that is planned, on average

}  // namespace

AdapterStore::AdapterStore(ModelRunner& runner, const model::ModelFiles& files,
                           const RowText& text_of_model, const Limits& limits)
    : runner_(runner),
      files_(files),
      text_of_model_(text_of_model),
      names_(files.names()),
      bounds_(limits.bounds),
      strict_(limits.strict),
      on_warning_(limits.on_warning),
      tiers_(
          runner, files,
          {.memory_bytes = limits.bounds.memory_bytes, .host_memory_bytes = limits.host_memory}) {
  if (!limits.folder.empty()) folder_.emplace(limits.folder);
  reserve(0);
}

/// Room for plans with so many adapters more.
void AdapterStore::reserve(size_t num_more) {
  const size_t num_adapters = by_name_.size() + nameless_.size() + num_more;
  tiers_.reserve(num_adapters);
  if (plan_.rows.capacity() > 0 && planned_.capacity() >= num_adapters) return;
  plan_.reserve(2 * num_adapters, kUsesOfRow * kMaxPlannedRows + kMaxAdaptersOfRow,
                kMaxPlannedRows);
  planned_.reserve(2 * num_adapters);
}

/// What is known of an adapter without its weights.
AdapterHold AdapterStore::describe(const std::string& path, const files::FolderBounds& bounds,
                                   const model::Adapter& opened) const {
  const model::DecoderConfig& config = files_.config();
  opened.check_fits(config.dims());
  const model::StoredValues& vocabulary = opened.embedding().weight;
  const int64_t num_tokens = vocabulary.is_present() ? vocabulary.rows : config.vocab_size;
  const model::StoredValues& head = opened.head().weight;
  const std::lock_guard lock(tokenizers_mutex_);
  return std::make_shared<KnownAdapter>(KnownAdapter{
      .path = path,
      .bounds = bounds,
      .text = text_of_adapter(text_of_model_, files_, model::FolderText(path, bounds), tokenizers_),
      .num_tokens = num_tokens,
      .num_logits = head.is_present() ? head.rows : config.vocab_size,
      .num_bytes = runner_.adapter_bytes(opened),
      .runs_alone = runner_.runs_alone(opened),
      .invocation = opened.invocation_tokens(),
      .has_embedding = !opened.embedding().is_empty(),
      .found = {},
      .has_host_copies = runner_.can_stage(opened)});
}

AdapterStore::Prepared AdapterStore::prepare(const std::string& given) const {
  files::FolderBounds bounds;
  if (folder_) bounds = folder_->bounds_of(given);
  const std::string path = bounds.empty() ? model::find_adapter_path(given) : given;
  std::unique_ptr<model::Adapter> opened;
  AdapterHold known;
  (void)read_settled(path, [&] {
    opened = model::open_adapter(path, files_.config(), bounds);
    opened->load();
    known = describe(path, bounds, *opened);
  });
  Prepared prepared{.known = std::move(known),
                    .info = {.name = {},
                             .folder = path,
                             .base_model = opened->base_model(),
                             .names_this_model = names_.may_be(opened->base_model()),
                             .warnings = opened->warnings(files_.config().dims())}};
  prepared.weights = runner_.prepare_adapter(*opened);
  return prepared;
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
  const auto place = by_name_.find(name);
  HEDDLE_CHECK(place == by_name_.end() || place->second->found, "adapter name \"", name,
               "\" is given twice");
}

AdapterInfo AdapterStore::add(const std::string& name, Prepared prepared, bool may_replace) {
  const AdapterHold& known = prepared.known;
  HEDDLE_CHECK(!name.empty(), known->path, ": an adapter needs a name");
  AdapterInfo& info = prepared.info;
  if (!info.names_this_model) {
    info.warnings.insert(info.warnings.begin(),
                         made_for_another(name, info.folder, info.base_model));
  }
  check_strict(info.warnings);
  if (!may_replace) check_free(name);
  reserve(1);
  if (!make_room_for_added(known->num_bytes)) {
    throw_error(ErrorCode::kOutOfMemory, known->path, ": needs ", known->num_bytes,
                " bytes of adapter memory, ", bounds_.memory_bytes - tiers_.device_bytes(), " of ",
                bounds_.memory_bytes,
                " are not in use; a larger adapter_memory (--adapter-memory) holds more");
  }
  // Name and room first, so that nothing can fail once the adapter is in its slot.
  prepared.info.name = name;
  nameless_.reserve(nameless_.size() + 1);
  const auto [place, is_new] = by_name_.emplace(name, nullptr);
  try {
    tiers_.put(*known, std::move(prepared.weights));
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
  const auto is_under_way = [](const AdapterHold& known) {
    return known->load != nullptr || known->move != nullptr;
  };
  std::erase_if(nameless_, [&](const AdapterHold& known) {
    if (known.use_count() > 1 || is_under_way(known)) return false;
    tiers_.drop(*known);
    tiers_.drop_host_copy(*known);
    return true;
  });
  if (!folder_) return;
  std::erase_if(by_name_, [&](const auto& entry) {
    const AdapterHold& known = entry.second;
    return known->found && known->weights == nullptr && known->host == nullptr &&
           !is_under_way(known) && known.use_count() == 1;
  });
}

AdapterHold AdapterStore::find(const std::string& name) {
  if (name.empty()) return nullptr;
  const auto place = by_name_.find(name);
  if (place != by_name_.end() && !place->second->found) return place->second;
  if (!folder_) throw UnknownAdapter("unknown adapter \"" + name + "\"");
  return find_in_folder(name);
}

/// The one that is known where its files are the same as then, else one that is read now.
AdapterHold AdapterStore::find_in_folder(const std::string& name) {
  free_unused();  // of requests that were only checked
  const std::string path = folder_->find(name);
  const int64_t begin = files::file_time_now();
  files::FileStamps stamps = stamps_of(path);
  const bool is_settled = files::are_settled(stamps, begin);
  const auto before = by_name_.find(name);
  const bool is_known = before != by_name_.end();
  const auto is_of_stamps = [&](const KnownAdapter& known) {
    // One that was found in files just written counts until they are at rest; from then on it does
    // where a load has found the same text.
    const bool may_differ = known.young_digest && is_settled && known.load == nullptr;
    return known.path == path && known.found == stamps && !may_differ;
  };
  if (is_known && is_of_stamps(*before->second)) {
    // What has failed for rows that are gone is tried again.
    if (before->second.use_count() == 1) before->second->failure = nullptr;
    return before->second;
  }
  reserve(1);
  AdapterHold known;
  {
    // Waiting until nobody writes is the business of the load, which runs beside the steps.
    const files::FolderBounds bounds = folder_->bounds_of(path);
    std::optional<uint64_t> digest;
    if (!is_settled) digest = digest_of(path, bounds);
    const auto opened = model::open_adapter(path, files_.config(), bounds);
    if (opened->replaces_rows()) opened->load();  // which are compared with the model's
    known = describe(path, bounds, *opened);
    known->young_digest = digest;
    HEDDLE_CHECK(stamps_of(path) == stamps && (!digest || digest_of(path, bounds) == *digest), path,
                 ": has changed while it was read; ask for it again");
    std::vector<std::string> warnings = opened->warnings(files_.config().dims());
    if (!names_.may_be(opened->base_model())) {
      warnings.push_back(made_for_another(name, path, opened->base_model()));
    }
    check_strict(warnings);
    if (on_warning_) std::ranges::for_each(warnings, on_warning_);
  }
  known->found = std::move(stamps);
  const int64_t host_memory = tiers_.limits().host_memory_bytes;
  if (known->has_host_copies && known->num_bytes > host_memory) {
    throw_error(ErrorCode::kOutOfMemory, path, ": needs ", known->num_bytes,
                " bytes of host memory for adapters, there are ", host_memory,
                " (adapter_host_memory)");
  }
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
  if (wanted <= bounds_.memory_bytes - added) return;
  throw_error(ErrorCode::kOutOfMemory, adapters.front()->path,
              adapters.size() > 1 ? " and those beside it need " : ": needs ", wanted,
              " bytes of adapter memory, there are ", bounds_.memory_bytes - added,
              " (adapter_memory: ", bounds_.memory_bytes, " bytes)");
}

std::span<const Admission> AdapterStore::plan(std::span<const Sequence* const> rows) noexcept {
  if (tiers_.poll()) free_unused();
  ++num_plans_;
  plan_.clear();
  for (KnownAdapter* known : tiers_.on_device()) add_to_plan(*known);
  rows = rows.first(std::min(rows.size(), kMaxPlannedRows));
  for (const Sequence* row : rows) {
    for (const AdapterHold& known : row->adapters.holds) {
      if (std::exchange(known->has_told_failure, false)) known->failure = nullptr;
    }
  }
  for (const Sequence* row : rows) {
    const auto begin = static_cast<int32_t>(plan_.uses.size());
    // Rows of large lists may be too many for one plan.
    if (plan_.uses.size() + row->adapters.holds.size() > plan_.uses.capacity()) break;
    for (const AdapterHold& known : row->adapters.holds) plan_.uses.push_back(add_to_plan(*known));
    plan_.rows.push_back({begin, static_cast<int32_t>(plan_.uses.size())});
  }
  plan_adapters(plan_, bounds_);
  // What has failed is told to a row that starts.
  for (size_t i = 0; i < plan_.rows.size(); ++i) {
    const auto has_failed = [](const AdapterHold& known) { return known->failure != nullptr; };
    if (std::ranges::any_of(rows[i]->adapters.holds, has_failed))
      plan_.row_plans[i] = Admission::kStarts;
  }
  carry_out();
  for (KnownAdapter* known : planned_) known->number = -1;
  planned_.clear();
  return plan_.row_plans;
}

/// Its number in the plan.
int32_t AdapterStore::add_to_plan(KnownAdapter& known) noexcept {
  if (known.number >= 0) return known.number;
  known.number = static_cast<int32_t>(planned_.size());
  planned_.push_back(&known);
  const auto num_holds = static_cast<int64_t>(known.weights.use_count());
  plan_.adapters.push_back({.num_bytes = known.num_bytes,
                            .place = tiers_.place(known),
                            .stays = !known.found,
                            .num_running = std::max<int64_t>(num_holds - 1, 0),
                            .last_used = known.last_used});
  return known.number;
}

/// Begins what the plan says, as far as it can be begun now.
void AdapterStore::carry_out() noexcept {
  for (size_t i = 0; i < plan_.rows.size(); ++i) {
    for (int32_t use = plan_.rows[i].begin; use < plan_.rows[i].end; ++use) {
      KnownAdapter& known = *planned_[size_t(plan_.uses[size_t(use)])];
      if (known.wanted_in == num_plans_) continue;
      known.wanted_in = num_plans_;
      known.wanted_by = i;
    }
  }
  auto evicts = plan_.evicts.begin();
  for (const int32_t number : plan_.brings) {
    KnownAdapter& known = *planned_[size_t(number)];
    if (known.failure) continue;
    while (known.num_bytes > bounds_.memory_bytes - tiers_.device_bytes()) {
      if (evicts == plan_.evicts.end()) break;
      tiers_.evict(*planned_[size_t(*evicts++)]);
    }
    if (known.num_bytes > bounds_.memory_bytes - tiers_.device_bytes()) break;
    if (!tiers_.begin_bring(known)) break;
  }
  for (const int32_t number : plan_.reads) {
    KnownAdapter& known = *planned_[size_t(number)];
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
    if (known->weights == nullptr) {
      check_ever_fit(row.adapters.holds);
      throw_error(ErrorCode::kOutOfMemory, known->path, ": needs ", known->num_bytes,
                  " bytes of adapter memory, ", tiers_.device_bytes(), " of ", bounds_.memory_bytes,
                  " are in use");
    }
    held.push_back(known->weights);
  }
  for (const AdapterHold& known : row.adapters.holds) tiers_.use(*known);
  for (size_t i = 0; i < row.adapters.uses.size(); ++i) row.adapters.uses[i].slot = held[i]->slot;
  row.adapters.slot = held.empty() ? kNoAdapter : held.front()->slot;
  row.adapters.weights = std::move(held);
}

void AdapterStore::wait_and_take(Sequence& row) {
  const Sequence* const rows[] = {&row};
  while (plan(rows).front() == Admission::kWaits && wait()) {
  }
  take(row);
}

void AdapterStore::prefetch(const Sequence& row) noexcept {
  for (const AdapterHold& known : row.adapters.holds) {
    const bool has_begun = known->weights || known->load || known->host || known->failure;
    if (!known->found || has_begun || !tiers_.has_room_to_read(*known)) continue;
    if (known->has_host_copies) {
      tiers_.begin_read(*known);
    } else {
      static_cast<void>(tiers_.begin_bring(*known));
    }
  }
}

/// Frees weights that no running row uses until these bytes fit; false, where they do not.
bool AdapterStore::make_room_for_added(int64_t num_bytes) noexcept {
  while (num_bytes > bounds_.memory_bytes - tiers_.device_bytes()) {
    KnownAdapter* oldest = nullptr;
    for (KnownAdapter* known : tiers_.on_device()) {
      const bool may_go = known->found && known->weights.use_count() == 1;
      if (may_go && (oldest == nullptr || known->last_used < oldest->last_used)) oldest = known;
    }
    if (oldest == nullptr) return false;
    tiers_.evict(*oldest);
  }
  return true;
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

}  // namespace heddle
