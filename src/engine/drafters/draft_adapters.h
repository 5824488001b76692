#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/adapters/adapter_tiers.h"
#include "engine/adapters/known_adapter.h"
#include "engine/rows/sequence.h"
#include "engine/runner/model_runner.h"
#include "model/source/model_files.h"

namespace heddle {

/// The adapters of a draft model: where the folder of an adapter of the model has a folder `draft`
/// with one for the draft model, rows of that adapter draft with it.
///
///   adapters.begin();                              // before the rows of a proposal
///   if (const auto found = adapters.find(row.adapters)) ...
///
/// Such an adapter is read when a row first drafts with it, by a thread of its own, and stays until
/// others need its place: the least recently used goes.
class DraftAdapters {
 public:
  struct Limits {
    int max_resident = 64;
    int64_t max_bytes = 0;  // of their weights
    bool strict = false;    // EngineOptions::strict, of check()
    /// Called with what is wrong with such a folder: rows draft without it then.
    std::function<void(const std::string& warning)> on_warning{};
  };
  /// What is given outlives it.
  DraftAdapters(ModelRunner& runner, const model::ModelFiles& files, Limits limits);

  /// Throws Error where the adapter has such a folder and what is in it does not fit the draft
  /// model. In any thread.
  void check(const KnownAdapter& of) const;

  /// What a row drafts with until the next begin(). `id` stands for the weights; 0: none.
  struct Found {
    int64_t id = 0;
    int32_t slot = kNoAdapter;
    int64_t num_tokens = 0;  // that it embeds
  };
  /// Completes reads that have ended. No step of the draft model is in flight.
  void begin();
  /// Nothing while the adapter is being read, or waits for a place. A row with a list of adapters,
  /// a merge or an adapter without such a folder drafts with none.
  [[nodiscard]] std::optional<Found> find(const RowAdapters& adapters);
  [[nodiscard]] const AdapterTiers::Counts& counts() const { return tiers_.counts(); }

 private:
  struct Entry {
    std::weak_ptr<KnownAdapter> of{};  // the model's
    int64_t id = 0;                    // 0: it has none
    int64_t used_in = 0;               // the last proposal that wants it
    KnownAdapter draft{};
  };

  [[nodiscard]] Entry& entry_of(const std::shared_ptr<KnownAdapter>& of);
  [[nodiscard]] std::vector<std::string> describe(KnownAdapter& draft,
                                                  const KnownAdapter& of) const;
  void begin_to_load(Entry& entry);
  [[nodiscard]] bool evict_one() noexcept;
  void forget_those_gone() noexcept;
  void refuse(Entry& entry, const std::exception& failure);
  void warn(const std::string& warning) const;

  ModelRunner& runner_;
  const model::ModelFiles& files_;
  Limits limits_;
  const std::atomic<bool> is_ending_ = false;
  std::map<const KnownAdapter*, std::unique_ptr<Entry>> entries_;
  int64_t last_id_ = 0, num_proposals_ = 0;
  AdapterTiers tiers_;  // ends before the entries that it reads
};

}  // namespace heddle
