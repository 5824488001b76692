#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"

#include "engine/adapters/adapter_folder.h"
#include "engine/adapters/known_adapter.h"
#include "engine/model_runner.h"
#include "engine/text/row_text.h"
#include "model/adapters/adapter.h"
#include "model/model_names.h"
#include "model/source/model_files.h"

namespace heddle {

/// The adapters of an engine, by name. Those that were added stay in memory until they are removed;
/// those of the folder come when a row that needs them starts, and go when others need the memory:
/// first the one that was used the longest ago, and none that a running row uses. Its functions are
/// called between two steps.
class AdapterStore {
 public:
  struct Limits {
    std::string folder;    // of adapters that are found by name; empty: none
    int64_t memory_bytes;  // of all weights of adapters
  };
  /// Loads that were made, what they took, and adapters that made room for others.
  struct Counts {
    int64_t num_loads = 0;
    double seconds = 0;
    int64_t num_evictions = 0;
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
  /// Gives a row, which starts, its adapters' weights and their slots. False: they are loaded by
  /// now, beside the steps of the engine, or the memory is in use by others; nothing is held then.
  /// Throws Error where an adapter cannot be read, has changed since it was found, or can never
  /// fit.
  [[nodiscard]] bool take(Sequence& row, bool others_run);
  /// Begins to load what the row will need, as far as there is room for it now.
  void prefetch(const Sequence& row) noexcept;
  /// Waits for a load that is under way; false: there is none.
  bool wait_for_load() noexcept;

  [[nodiscard]] bool has(const std::string& name) const { return by_name_.contains(name); }
  /// In alphabetical order.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::vector<AdapterState> states() const;
  [[nodiscard]] int64_t num_in_memory() const;
  [[nodiscard]] int64_t bytes_in_memory() const;
  [[nodiscard]] int64_t memory_bytes() const { return memory_bytes_; }
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  [[nodiscard]] AdapterHold describe(const std::string& path, const model::Adapter& opened) const;
  [[nodiscard]] AdapterHold find_in_folder(const std::string& name);
  [[nodiscard]] bool make_room(int64_t num_bytes) noexcept;
  void begin_load(KnownAdapter& known);
  void end_load(KnownAdapter& known);
  [[nodiscard]] int64_t num_loads_under_way() const;
  void put(KnownAdapter& known, ModelRunner::PreparedAdapter weights);
  void drop(KnownAdapter& known) noexcept;
  /// body(adapter) for each that is known.
  template <class Body>
  void for_each(const Body& body) const {
    for (const auto& [name, known] : by_name_) body(*known);
    for (const AdapterHold& known : nameless_) body(*known);
  }

  ModelRunner& runner_;
  const model::ModelFiles& files_;
  const RowText& text_of_model_;
  model::ModelNames names_;
  std::optional<AdapterFolder> folder_;
  mutable std::mutex tokenizers_mutex_;
  mutable OwnTokenizers tokenizers_;
  int64_t memory_bytes_;
  uint64_t num_uses_ = 0;
  Counts counts_;
  std::map<std::string, AdapterHold> by_name_;
  std::vector<AdapterHold> nameless_;  // which rows may still use
};

}  // namespace heddle
