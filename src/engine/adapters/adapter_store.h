#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/engine/engine.h"

#include "engine/adapters/adapter_folder.h"
#include "engine/adapters/adapter_schedule.h"
#include "engine/adapters/adapter_tiers.h"
#include "engine/adapters/known_adapter.h"
#include "engine/adapters/norm_worker.h"
#include "engine/rows/row_queue.h"
#include "engine/runner/model_runner.h"
#include "engine/text/row_text.h"
#include "model/adapters/adapter.h"
#include "model/model_names.h"
#include "model/source/model_files.h"

namespace heddle {

/// NAME@VERSION
[[nodiscard]] std::string version_name(const std::string& name, int64_t version);

/// The adapters of an engine, by name. Those that were added stay in memory until they are removed;
/// those of the folder are loaded for the rows that wait, and evicted when others need the memory:
/// the least recently used first, and none that a running row uses. schedule_adapters says which,
/// AdapterTiers has them.
class AdapterStore : public RowQueue::Adapters {
 public:
  struct Limits {
    std::vector<std::string> folders;  // of adapters that are found by name; empty paths: none
    AdapterBounds bounds;              // of all weights of adapters, and of those of a step
    int64_t host_memory;               // bytes of copies in host memory; 0 where there are none
    /// Bytes on the device of those that may be evicted, besides `bounds`.
    int64_t evictable_memory = std::numeric_limits<int64_t>::max();
    bool strict = false;  // EngineOptions::strict
    std::function<void(const std::string&)> on_warning{};
    std::function<void(const std::string&, const AdapterReceipt&)> on_receipt{};  // EngineOptions'
  };
  /// What is given outlives the store.
  AdapterStore(ModelRunner& runner, const model::ModelFiles& files, const RowText& text_of_model,
               const Limits& limits);

  // In any thread, concurrently with all other functions:

  /// An adapter on its way to a name.
  struct Prepared {
    AdapterHold known{};
    AdapterInfo info{};
    std::shared_ptr<const model::Adapter> opened{};  // until it is checked
    AdapterIdentity identity{};                      // once it is
    std::shared_ptr<const DeviceEvent> copied{};     // since begin_copy, where there is a copy
  };
  /// Reads an adapter and lays its weights out in memory of the device, or for a copy to it.
  [[nodiscard]] Prepared stage(const std::string& path) const;
  [[nodiscard]] Prepared stage(const AdapterContent& content) const;
  /// Looks at all values of one that was staged, for its digest and its receipt. Throws Error where
  /// they cannot be computed with. It is ready for a name then.
  void check(Prepared& staged) const;
  /// The adapter for a row; reads of one of the folder what is needed to check the row. Null for no
  /// name. Throws Error where it is unknown, damaged or does not fit the model.
  [[nodiscard]] AdapterHold find(const std::string& name);
  /// The adapters of a list, which were found, as one that is merged; `merge` is not kLinear. Reads
  /// of adapters of the folder the weights, once, to know what they are. The merge itself is made
  /// when it is scheduled, as adapters are read. Throws Error where they cannot be merged.
  [[nodiscard]] AdapterHold find_merge(const AdapterList& list,
                                       const std::vector<AdapterHold>& parts,
                                       const AdapterMerge& merge);
  /// Throws Error, which has both numbers, where the adapters of a row can never be in memory at
  /// once.
  void check_ever_fit(const std::vector<AdapterHold>& adapters) const;
  /// Throws Error where an adapter was added under the name.
  void check_free(const std::string& name) const;
  /// The adapter that the name stands for now, without a look at the folder; null: none.
  [[nodiscard]] AdapterHold known_under(const std::string& name) const;
  [[nodiscard]] bool has(const std::string& name) const;
  /// In alphabetical order.
  [[nodiscard]] std::vector<std::string> names() const;

  /// Engine::adapter_receipt.
  [[nodiscard]] std::optional<AdapterReceipt> receipt(const std::string& name,
                                                      ReceiptNorms norms) const;

  // In the thread of the engine, between two steps:

  /// Begins to copy an adapter that was staged to the device, where that takes a copy. Without the
  /// caller's hold it is dropped again. Throws Error where there is no room for it.
  void begin_copy(Prepared& staged);
  /// Gives an adapter that was checked its name, in place of the one that has it where
  /// `may_replace`. Where it throws, none that was added has changed.
  AdapterInfo add(const std::string& name, Prepared prepared, bool may_replace);
  /// The name has so many older versions, of those that it will have had, as NAME@VERSION.
  void keep_versions(const std::string& name, size_t count);
  /// An older version that is kept. Throws UnknownAdapter, which lists those that are.
  [[nodiscard]] AdapterHold older_version(const std::string& name, int64_t version) const;
  /// The name stands for that again, and what it stood for is kept.
  void roll_back(const std::string& name, const AdapterHold& back);
  /// Takes the name away, and its older versions; false where no adapter of that name is known. One
  /// of the folder is read again when it is next found.
  bool remove(const std::string& name);
  /// Forgets the adapters without a name that no row has any more, and those of the folder and
  /// merges that are neither in memory nor wanted by a row.
  void free_unused() noexcept;
  /// Reserves memory for schedules with all adapters that have been found, and `num_more`. To be
  /// called for every row after its adapters were found, before it waits.
  void reserve(size_t num_more = 0);
  /// Completes the reads and moves that have ended, and decides what becomes of rows that wait,
  /// given in the order in which they would start; begins to load what they want. Valid until the
  /// next call. Allocates nothing but for what it begins.
  [[nodiscard]] std::span<const Admission> schedule(
      std::span<const Sequence* const> rows) noexcept override;
  /// Gives a row, which starts as scheduled, its adapters' weights and their slots. Throws where an
  /// adapter cannot be read, has changed since it was found, or can never fit.
  void take(Sequence& row) override;
  [[nodiscard]] Digest content(const Sequence& row) const noexcept override;
  /// Waits until the row may start, and takes. For a row that runs alone.
  void wait_and_take(Sequence& row);
  /// Begins to load what the row will need, as far as there is room for it now.
  void prefetch(const Sequence& row) noexcept;
  /// Waits for a read or a move in flight; false: there is none.
  bool wait() noexcept { return tiers_.wait(); }
  [[nodiscard]] std::vector<AdapterState> states() const;
  [[nodiscard]] const AdapterTiers& tiers() const { return tiers_; }

 private:
  using Lock = std::lock_guard<std::mutex>;

  [[nodiscard]] AdapterHold describe(const std::string& path, const files::FolderBounds& bounds,
                                     const model::Adapter& opened) const;
  [[nodiscard]] std::vector<std::string> warnings_of(const model::Adapter& opened) const;
  [[nodiscard]] RowText text_of(const KnownAdapter& known) const;
  [[nodiscard]] Prepared stage(const std::shared_ptr<const model::Adapter>& opened,
                               AdapterHold known) const;
  [[nodiscard]] AdapterHold find_in_folder(const std::string& name);
  [[nodiscard]] AdapterHold read_facts(const std::string& name, const std::string& path,
                                       files::FileStamps stamps, bool is_settled) const;
  [[nodiscard]] std::string made_for_another(const std::string& name, const std::string& path,
                                             const std::string& base_model) const;
  void check_strict(const std::vector<std::string>& warnings) const;
  [[nodiscard]] AdapterData take_spare() const;
  void keep_spare(KnownAdapter& known) noexcept;
  void make_resident(const Prepared& prepared);
  void report_read(const std::string& path, const AdapterReceipt& receipt) const;
  void measure_later(const KnownAdapter& known) noexcept;
  [[nodiscard]] Digest content_of(KnownAdapter& known) const;
  [[nodiscard]] AdapterHold describe_merge(MergeRecipe recipe) const;
  [[nodiscard]] int64_t memory_limit() const noexcept;
  int32_t add_to_schedule(KnownAdapter& known) noexcept;
  void carry_out() noexcept;
  void make_room_for_added(const KnownAdapter& known);

  /// Older versions of a name.
  struct Versions {
    std::vector<AdapterHold> kept{};  // ascending; `nameless_` has them, too
    size_t max_kept = 0;
    int64_t last = 0;  // that the name has had
  };
  [[nodiscard]] AdapterHold find_version(const std::string& name) const;
  [[nodiscard]] Versions& versions_of(const std::string& name);
  void keep(Versions& versions, const AdapterHold& old) noexcept;
  [[nodiscard]] bool drop_a_version() noexcept;
  [[nodiscard]] bool drop_a_copy();

  ModelRunner& runner_;
  const model::ModelFiles& files_;
  const RowText& text_of_model_;
  model::ModelNames names_;
  AdapterFolders folders_;
  mutable std::mutex spare_mutex_;
  mutable AdapterData spare_;  // with the pinned memory of the adapter that was added last
  mutable std::mutex tokenizers_mutex_;
  mutable OwnTokenizers tokenizers_;
  AdapterBounds bounds_;
  int64_t evictable_memory_;
  bool strict_;
  std::function<void(const std::string&)> on_warning_;
  std::function<void(const std::string&, const AdapterReceipt&)> on_receipt_;
  std::mutex folder_mutex_;         // one thread reads the folder at a time
  std::mutex merges_mutex_;         // one thread looks for a merge at a time
  mutable std::mutex names_mutex_;  // of the four below; nothing is read while it is held
  std::map<std::string, AdapterHold> by_name_;
  std::list<AdapterHold> nameless_;                              // which rows may still use
  std::map<std::pair<uint64_t, uint64_t>, AdapterHold> merges_;  // by the digests of their recipes
  std::map<std::string, Versions> versions_;
  std::list<AdapterHold> copied_;  // since begin_copy; they have no name yet
  NormWorker norm_worker_;
  AdapterTiers tiers_;
  AdapterSchedule schedule_;
  std::vector<KnownAdapter*> scheduled_;  // [schedule_.adapters.size()], while one is made
  uint64_t num_schedules_ = 0;
};

}  // namespace heddle
