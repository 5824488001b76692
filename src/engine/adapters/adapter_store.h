#pragma once

#include <map>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"

#include "engine/adapters/known_adapter.h"
#include "engine/model_runner.h"
#include "engine/text/row_text.h"
#include "model/model_names.h"
#include "model/source/model_files.h"

namespace heddle {

/// The adapters of an engine, by name. Its functions are called between two steps.
class AdapterStore {
 public:
  /// What is given outlives the store.
  AdapterStore(ModelRunner& runner, const model::ModelFiles& files, const RowText& text_of_model)
      : runner_(runner), files_(files), text_of_model_(text_of_model), names_(files.names()) {}

  /// Loads an adapter under its name, in place of the one that has it. Where it throws, the
  /// adapters are as they were.
  AdapterInfo load(const std::string& name, const std::string& folder);
  /// Takes the name away; false where there is no adapter of that name.
  bool remove(const std::string& name);
  /// Frees the weights of adapters without a name whose last row has ended.
  void free_unused() noexcept;

  /// Null for no name; throws Error for one that is unknown.
  [[nodiscard]] AdapterHold find(const std::string& name) const;
  [[nodiscard]] bool has(const std::string& name) const { return by_name_.contains(name); }
  /// In alphabetical order.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  ModelRunner& runner_;
  const model::ModelFiles& files_;
  const RowText& text_of_model_;
  model::ModelNames names_;
  std::map<std::string, AdapterHold> by_name_;
  std::vector<AdapterHold> nameless_;  // which rows may still use
};

}  // namespace heddle
