#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"

#include "engine/adapters/adapter_folder.h"
#include "engine/adapters/adapter_plan.h"
#include "engine/adapters/adapter_tiers.h"
#include "engine/adapters/known_adapter.h"
#include "engine/rows/row_queue.h"
#include "engine/runner/model_runner.h"
#include "engine/text/row_text.h"
#include "model/adapters/adapter.h"
#include "model/model_names.h"
#include "model/source/model_files.h"

namespace heddle {

/// The adapters of an engine, by name. Those that were added stay in memory until they are removed;
/// those of the folder come for the rows that wait, and go when others need the memory: first the
/// one that was used the longest ago, and none that a running row uses. plan_adapters says which,
/// AdapterTiers has them. Its functions are called between two steps.
class AdapterStore : public RowQueue::Adapters {
 public:
  struct Limits {
    std::string folder;    // of adapters that are found by name; empty: none
    AdapterBounds bounds;  // of all weights of adapters, and of those of a step
    int64_t host_memory;   // bytes of copies in host memory; 0 where there are none
    bool strict = false;   // EngineOptions::strict
    std::function<void(const std::string&)> on_warning{};
  };
  /// What is given outlives the store.
  AdapterStore(ModelRunner& runner, const model::ModelFiles& files, const RowText& text_of_model,
               const Limits& limits);

  /// An adapter that was read, and is ready for a name.
  struct Prepared {
    AdapterHold known{};
    AdapterInfo info{};
    ModelRunner::PreparedAdapter weights{};
  };
  /// Reads an adapter. May run beside all other calls, in any thread.
  [[nodiscard]] Prepared prepare(const std::string& path) const;
  /// Gives it its name, in place of the one that has it where `may_replace`. Where it throws, none
  /// that was added has changed.
  AdapterInfo add(const std::string& name, Prepared prepared, bool may_replace);
  /// Throws Error where an adapter was added under the name.
  void check_free(const std::string& name) const;
  /// Takes the name away; false where no adapter of that name is known. One of the folder is read
  /// again when it is next asked for.
  bool remove(const std::string& name);
  /// Forgets the adapters without a name that no row has any more, and those of the folder that are
  /// neither in memory nor wanted by a row.
  void free_unused() noexcept;

  /// The adapter for a row that is submitted now; reads of one of the folder what is needed to
  /// check the row. Null for no name. Throws Error where it is unknown, damaged or does not fit the
  /// model.
  [[nodiscard]] AdapterHold find(const std::string& name);
  /// Throws Error, which has both numbers, where the adapters of a row can never be in memory at
  /// once.
  void check_ever_fit(const std::vector<AdapterHold>& adapters) const;
  /// Takes in what has come by now, and decides what becomes of rows that wait, given the oldest
  /// first; begins to bring what they want. Valid until the next call. Asks for no memory but for
  /// what it begins.
  [[nodiscard]] std::span<const Admission> plan(
      std::span<const Sequence* const> rows) noexcept override;
  /// Gives a row, which starts as the plan says, its adapters' weights and their slots. Throws
  /// where an adapter cannot be read, has changed since it was found, or can never fit.
  void take(Sequence& row) override;
  /// Waits until the row may start, and takes. For a row beside which none runs.
  void wait_and_take(Sequence& row);
  /// Begins to read what the row will need, as far as there is room for it now.
  void prefetch(const Sequence& row) noexcept;
  /// Waits for something that is under way; false: there is nothing.
  bool wait() noexcept { return tiers_.wait(); }

  [[nodiscard]] bool has(const std::string& name) const { return by_name_.contains(name); }
  /// In alphabetical order.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::vector<AdapterState> states() const;
  [[nodiscard]] const AdapterTiers& tiers() const { return tiers_; }

 private:
  [[nodiscard]] AdapterHold describe(const std::string& path, const files::FolderBounds& bounds,
                                     const model::Adapter& opened) const;
  [[nodiscard]] AdapterHold find_in_folder(const std::string& name);
  [[nodiscard]] std::string made_for_another(const std::string& name, const std::string& path,
                                             const std::string& base_model) const;
  void check_strict(const std::vector<std::string>& warnings) const;
  void reserve(size_t num_more);
  int32_t add_to_plan(KnownAdapter& known) noexcept;
  void carry_out() noexcept;
  [[nodiscard]] bool make_room_for_added(int64_t num_bytes) noexcept;
  ModelRunner& runner_;
  const model::ModelFiles& files_;
  const RowText& text_of_model_;
  model::ModelNames names_;
  std::optional<AdapterFolder> folder_;
  mutable std::mutex tokenizers_mutex_;
  mutable OwnTokenizers tokenizers_;
  AdapterBounds bounds_;
  bool strict_;
  std::function<void(const std::string&)> on_warning_;
  std::map<std::string, AdapterHold> by_name_;
  std::vector<AdapterHold> nameless_;  // which rows may still use
  AdapterTiers tiers_;
  AdapterPlan plan_;
  std::vector<KnownAdapter*> planned_;  // [plan_.adapters.size()], while a plan is made
  uint64_t num_plans_ = 0;
};

}  // namespace heddle
