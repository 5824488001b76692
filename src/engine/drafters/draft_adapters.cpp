#include "engine/drafters/draft_adapters.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <utility>

#include "heddle/core/error.h"

#include "engine/adapters/adapter_folder.h"
#include "model/adapters/open_adapter.h"

namespace heddle {

DraftAdapters::DraftAdapters(ModelRunner& runner, const model::ModelFiles& files, Limits limits)
    : runner_(runner),
      files_(files),
      limits_(std::move(limits)),
      tiers_(runner, files, {.memory_bytes = limits_.max_bytes, .host_memory_bytes = 0}, is_ending_,
             [this](const std::string& path, const AdapterReceipt& receipt) {
               if (receipt.is_zero) warn(path + ": changes nothing, as before any training");
             }) {}

void DraftAdapters::begin() {
  ++num_proposals_;
  (void)tiers_.poll();
}

std::optional<DraftAdapters::Found> DraftAdapters::find(const RowAdapters& adapters) {
  const Found none{.num_tokens = files_.config().vocab_size};
  const KnownAdapter* const of = adapters.first();
  const bool is_one = adapters.holds.size() == 1 && adapters.uses.empty();
  if (!is_one || of->recipe != nullptr) return none;
  Entry& entry = entry_of(adapters.holds.front());
  entry.used_in = num_proposals_;
  if (entry.id == 0) return none;
  KnownAdapter& draft = entry.draft;
  if (draft.data.slot == nullptr && !draft.is_in_flight() && !draft.failure) begin_to_load(entry);
  if (draft.failure) {
    try {
      std::rethrow_exception(std::exchange(draft.failure, nullptr));
    } catch (const std::exception& failure) {
      refuse(entry, failure);
    }
    return none;
  }
  if (draft.data.slot == nullptr) return std::nullopt;
  return Found{.id = entry.id, .slot = *draft.data.slot, .num_tokens = draft.num_tokens};
}

DraftAdapters::Entry& DraftAdapters::entry_of(const std::shared_ptr<KnownAdapter>& of) {
  const auto known = entries_.find(of.get());
  if (known != entries_.end()) {
    if (known->second->of.lock() == of) return *known->second;
    while (known->second->draft.is_in_flight()) {  // of one that is gone, and had this address
      if (tiers_.wait()) (void)tiers_.poll();
    }
  }
  forget_those_gone();
  tiers_.reserve(entries_.size() + 1);
  auto made = std::make_unique<Entry>();
  made->of = of;
  Entry& entry = *(entries_[of.get()] = std::move(made));
  try {
    for (const std::string& warning : describe(entry.draft, *of)) warn(warning);
    if (entry.draft.found) entry.id = ++last_id_;
  } catch (const std::exception& failure) {
    refuse(entry, failure);
  }
  return entry;
}

/// What is known of the adapter without its weights, but for KnownAdapter::found where there is
/// none; returns what is odd about it.
std::vector<std::string> DraftAdapters::describe(KnownAdapter& draft,
                                                 const KnownAdapter& of) const {
  namespace fs = std::filesystem;
  draft.path = of.path + "/draft";
  draft.bounds = of.bounds;
  std::error_code error;
  const bool may_have = of.given == nullptr && fs::is_directory(of.path, error);
  if (!may_have || !fs::exists(fs::symlink_status(draft.path, error))) return {};
  HEDDLE_CHECK(fs::is_directory(draft.path, error), draft.path, ": is no folder");
  const model::ModelDims& dims = files_.config().dims();
  files::FileStamps stamps = stamps_of(draft.path);
  const auto opened = model::open_adapter(draft.path, files_.config(), draft.bounds);
  opened->check_fits(dims);
  const model::StoredValues& own = opened->embedding().weight;
  draft.num_tokens = own.is_present() ? own.rows : files_.config().vocab_size;
  draft.num_bytes = std::as_const(runner_).adapters().num_bytes(*opened);
  HEDDLE_CHECK(draft.num_bytes <= limits_.max_bytes, draft.path, ": needs ", draft.num_bytes,
               " bytes, there are ", limits_.max_bytes, " for all adapters of the draft model");
  draft.found = std::move(stamps);
  return opened->warnings(dims);
}

void DraftAdapters::check(const KnownAdapter& of) const {
  KnownAdapter draft;
  const std::vector<std::string> warnings = describe(draft, of);
  if (limits_.strict && !warnings.empty()) {
    throw_error(ErrorCode::kInvalidArgument, warnings.front());
  }
}

/// Where there is a place; a failure is KnownAdapter::failure.
void DraftAdapters::begin_to_load(Entry& entry) {
  KnownAdapter& draft = entry.draft;
  const auto has_place = [&] {
    return std::ssize(tiers_.on_device()) < limits_.max_resident &&
           draft.num_bytes <= limits_.max_bytes - tiers_.device_bytes();
  };
  while (!has_place()) {
    if (!evict_one()) return;
  }
  (void)tiers_.begin_move(draft);
}

/// The one used least recently; none of this proposal.
bool DraftAdapters::evict_one() noexcept {
  Entry* oldest = nullptr;
  for (const auto& [of, entry] : entries_) {
    const bool may_go = entry->draft.data.slot != nullptr && entry->used_in != num_proposals_;
    if (may_go && (oldest == nullptr || entry->used_in < oldest->used_in)) oldest = entry.get();
  }
  if (oldest != nullptr) tiers_.evict(oldest->draft);
  return oldest != nullptr;
}

/// The adapters that the engine no longer has.
void DraftAdapters::forget_those_gone() noexcept {
  std::erase_if(entries_, [this](const auto& known) {
    Entry& entry = *known.second;
    if (!entry.of.expired() || entry.draft.is_in_flight()) return false;
    tiers_.drop(entry.draft);
    return true;
  });
}

void DraftAdapters::refuse(Entry& entry, const std::exception& failure) {
  entry.id = 0;
  const std::string& path = entry.draft.path;
  const std::string what = failure.what();
  warn((what.starts_with(path) ? what : path + ": " + what) +
       "; its rows draft with the draft model alone");
}

void DraftAdapters::warn(const std::string& warning) const {
  if (limits_.on_warning) limits_.on_warning(warning);
}

}  // namespace heddle
